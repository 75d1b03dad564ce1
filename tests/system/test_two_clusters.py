"""Two clusters of one user on the hosts of one file, from the command line."""

import json

import pytest

from tests.sshd import SshHosts
from tests.system.conftest import Command

ONE = "gpus=none workers=1 nthreads=1 memory=256MiB"


@pytest.mark.slow
def test_two_clusters_on_one_hosts_file_end_by_themselves(
    gputui: Command, openssh_hosts: SshHosts
) -> None:
    gputui.env |= openssh_hosts.environment
    names = [host.name for host in openssh_hosts.hosts[:2]]
    (gputui.folder / "hosts.txt").write_text("".join(f"{name} {ONE}\n" for name in names))
    for cluster in ("lab", "night"):
        done = gputui("up", "hosts.txt", "--name", cluster)
        assert done.returncode == 0 and "2 workers" in done.stdout, done.stderr

    assert gputui("down", "night").returncode == 0
    (left,) = json.loads(gputui("ls", "--json").stdout)
    assert left["name"] == "lab"
    run = gputui.json("--attach", "lab", "--run", "random-sum", "-p", "size=200")
    assert sorted(worker["host"] for worker in run["workers"]) == names
