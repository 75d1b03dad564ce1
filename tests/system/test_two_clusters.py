"""Two clusters of one user on the hosts of one file, from the command line."""

import json

import pytest

from gputui.client.head_connection import HeadConnection
from tests.clusters import LiveCluster
from tests.sshd import SshHosts
from tests.system.conftest import Command

ONE = "gpus=none workers=1 nthreads=1 memory=256MiB"


@pytest.mark.slow
async def test_two_clusters_on_one_hosts_file_name_each_other_once_and_end_by_themselves(
    gputui: Command, openssh_hosts: SshHosts
) -> None:
    gputui.env |= openssh_hosts.environment
    names = [host.name for host in openssh_hosts.hosts[:2]]
    (gputui.folder / "hosts.txt").write_text("".join(f"{name} {ONE}\n" for name in names))
    for cluster in ("lab", "night"):
        done = gputui("up", "hosts.txt", "--name", cluster)
        assert done.returncode == 0 and "2 workers" in done.stdout, done.stderr
    assert await named(gputui, "night", "your cluster lab") == names
    assert await named(gputui, "lab", "your cluster night") == names

    assert gputui("down", "night").returncode == 0
    (left,) = json.loads(gputui("ls", "--json").stdout)
    assert left["name"] == "lab"
    run = gputui.json("--attach", "lab", "--run", "random-sum", "-p", "size=200")
    assert sorted(worker["host"] for worker in run["workers"]) == names
    assert await named(gputui, "lab", "your cluster night") == names


async def named(gputui: Command, cluster: str, words: str) -> list[str]:
    """Wait until every host of a cluster names the other one; return the host of each time."""
    connection_file = json.loads((gputui.runtime / "gputui" / f"{cluster}.json").read_text())
    link = await HeadConnection.open(connection_file["socket"], frontend="command", snapshots=True)
    live = LiveCluster(None, link, connection_file["socket"])
    live.listen()
    try:
        await live.until(lambda: len(hosts_that_say(live, words)) > 1)
        return sorted(hosts_that_say(live, words))
    finally:
        await link.close()


def hosts_that_say(live: LiveCluster, words: str) -> list[str]:
    return [event.subject for event in live.events if words in event.text]
