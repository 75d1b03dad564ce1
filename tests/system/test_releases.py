"""What earlier releases left running or wrote is listed, stopped and shown by this one."""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.releases import RELEASES
from tests.sshd import SshHosts
from tests.system.conftest import BOUND_S, Command


@contextlib.contextmanager
def head_of(release: Path, runtime: Path, **changes: object) -> Iterator["subprocess.Popen[str]"]:
    """Play the head of an earlier release; its connection file may say something else."""
    said = json.loads((release / "connection.json").read_text())
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.releases", str(release), str(runtime), json.dumps(changes)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "GPUTUI_CLUSTER": said["cluster_id"]},
    )
    try:
        assert process.stdout and process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("release", RELEASES, ids=lambda path: path.name)
def test_a_cluster_of_an_earlier_release_is_listed_and_stopped(
    gputui: Command, release: Path
) -> None:
    with head_of(release, gputui.runtime) as head:
        (row,) = json.loads(gputui("ls", "--json").stdout)
        assert (row["name"], row["pid"], row["workers"]) == ("lab", head.pid, None)
        listed = gputui("ls")
        assert "(of another version)" in listed.stdout
        assert "gputui down stops a cluster of another version" in listed.stderr
        done = gputui("down", "lab")
        assert (done.returncode, done.stdout) == (0, "lab: stopped\n"), done.stderr
        assert head.wait(BOUND_S) == 0
    gputui.assert_nothing_left()


@pytest.mark.parametrize("release", RELEASES, ids=lambda path: path.name)
def test_a_cluster_of_an_earlier_release_on_another_machine_is_stopped(
    gputui: Command, release: Path, openssh_hosts: SshHosts
) -> None:
    gputui.env |= openssh_hosts.environment
    host = openssh_hosts.hosts[2]
    with head_of(release, openssh_hosts.folder / host.name) as head:
        done = gputui("down", f"{host.name}:lab")
        assert (done.returncode, done.stdout) == (0, f"{host.name}:lab: stopped\n"), done.stderr
        assert head.wait(BOUND_S) == 0


@pytest.mark.parametrize("release", RELEASES, ids=lambda path: path.name)
def test_a_cluster_of_an_earlier_release_says_why_it_cannot_be_used(
    gputui: Command, release: Path
) -> None:
    with head_of(release, gputui.runtime):
        done = gputui("--attach", "lab", "--run", "smoke", "--quiet")
        assert done.returncode == 3
        assert "use the gputui that started the cluster" in done.stderr


@pytest.mark.parametrize("release", RELEASES, ids=lambda path: path.name)
def test_a_cluster_of_another_version_elsewhere_says_what_to_install(
    gputui: Command, openssh_hosts: SshHosts, release: Path
) -> None:
    gputui.env |= openssh_hosts.environment
    login = openssh_hosts.hosts[2].name
    with head_of(release, openssh_hosts.folder / login, version="0.0.9"):
        done = gputui("--attach", f"{login}:lab", "--run", "smoke", "--quiet")
    assert done.returncode == 3
    assert f"{login} has gputui 0.0.9, and this machine" in done.stderr
    assert "pip install gputui==0.0.9 here" in done.stderr


@pytest.mark.parametrize("release", RELEASES, ids=lambda path: path.name)
def test_a_run_that_an_earlier_release_recorded_is_shown(gputui: Command, release: Path) -> None:
    said = json.loads((release / "run.json").read_text())
    folder = gputui.folder / "state" / "gputui" / "runs" / said["id"]
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps(said))
    shown = json.loads(gputui("runs", "show", said["id"], "--json").stdout)
    assert shown == shown | said
    assert said["summary"] in gputui("runs").stdout
