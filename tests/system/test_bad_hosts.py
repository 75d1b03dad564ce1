"""Hosts that fail, each in its own way: each is told, and the one that is good computes."""

import json
import re
import socket
from collections.abc import Callable, Iterator

import pytest

from tests.sshd import AsyncsshServer, SshHost, SshHosts, free_port
from tests.system.conftest import Command

Start = Callable[..., AsyncsshServer]

CPU = "gpus=none workers=1 nthreads=1 memory=512MiB"
RUN = ("--run", "random-sum", "-p", "size=200", "--json", "--quiet")

TOLD = {
    "nowhere.invalid": ("resolving", "does not resolve", "correct the name"),
    "closed": ("connecting", "refuses the connection", "host:port"),
    "strict": ("authenticating", "refused the login of", "ssh-copy-id"),
    "nogpu": ("probing", "no GPU 0: it has none", "write gpus=none"),
}
"""Host → the stage it fails in, what is said, and what mends it."""


@pytest.fixture
def silent_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def alias(hosts: SshHosts, name: str, **settings: object) -> None:
    """Add a name for the first of the hosts to the SSH configuration, with these settings."""
    section = hosts.section(hosts.hosts[0]).replace(hosts.hosts[0].name, name, 1)
    for key, value in settings.items():
        section = re.sub(rf"^  {key} .*$", f"  {key} {value}", section, flags=re.MULTILINE)
    hosts.config.write_text(hosts.config.read_text() + section)


@pytest.mark.slow
def test_every_bad_host_is_told_with_its_hint_and_the_good_one_computes(
    gputui: Command, start_asyncssh: Start, ssh_folder: SshHosts
) -> None:
    start_asyncssh("good", banner='Welcome!\n["Pong", 7]\nno newline at the end: ')
    start_asyncssh("strict", lets_in=False)
    alias(ssh_folder, "closed", Port=free_port())
    alias(ssh_folder, "nogpu")
    lines = ["nogpu gpus=0", *(f"{name} {CPU}" for name in ("good", *TOLD) if name != "nogpu")]
    (gputui.folder / "hosts.txt").write_text("\n".join(lines))
    gputui.env |= ssh_folder.environment

    done = gputui("hosts.txt", *RUN)

    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout)
    assert [worker["name"] for worker in printed["workers"]] == ["good:cpu0"]
    stages = {host["host"]: host["stage"] for host in printed["failed_hosts"]}
    assert stages == {name: stage for name, (stage, _, _) in TOLD.items()}
    for name, (_, reason, hint) in TOLD.items():
        said = re.search(rf"gputui: {re.escape(name)}: (.*)\ngputui:   (.*)\n", done.stderr)
        assert said and reason in said[1] and hint in said[2], done.stderr
    assert "Traceback" not in done.stderr


def test_the_last_lines_of_a_host_that_failed_are_shown(gputui: Command) -> None:
    python = gputui.folder / "python"
    python.write_text("#!/bin/sh\nprintf 'line %s\\n' 1 2 3 4 5 6 7 >&2; exit 9\n")
    python.chmod(0o755)
    done = gputui(f"localhost {CPU} python={python}", *RUN)
    assert done.returncode == 3
    reason, *lines = re.findall(r"^gputui: localhost: (.*)|^gputui: *(\| .*)", done.stderr, re.M)
    assert "its agent could not be started (exit status 9): line 7" in reason[0]
    assert [said for _, said in lines] == [f"| line {number}" for number in range(2, 7)]


@pytest.mark.slow
@pytest.mark.parametrize("command", ["run", "up"])
def test_each_failure_is_printed_when_it_is_known_and_what_is_waited_for(
    gputui: Command, ssh_folder: SshHosts, silent_port: int, command: str
) -> None:
    ssh_folder.describe(SshHost("silent", "127.0.0.1", silent_port, "me"))
    gputui.env |= ssh_folder.environment
    hosts = f"localhost {CPU}; nowhere.invalid gpus=none; silent gpus=none"
    process = gputui.start(*(("up", hosts) if command == "up" else (hosts, *RUN)))
    lines = iter(process.stderr.readline, "")
    assert any("nowhere.invalid" in line and "does not resolve" in line for line in lines)
    assert any("2 of 3 hosts are done; waiting for silent (authenticating)" in x for x in lines)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "nowhere.invalid" not in said and "silent: " in said
    gputui.end_clusters()


def test_a_failure_is_printed_once(gputui: Command) -> None:
    for arguments in (("--run", "smoke"), ("--run", "smoke", "--json")):
        done = gputui("nowhere.invalid gpus=none", *arguments)
        assert done.returncode == 3
        assert done.stderr.count("nowhere.invalid does not resolve") == 1
        assert ("does not resolve" in done.stdout) == ("--json" in arguments)
