"""A host that lies to a real head, over SSH: it harms itself only; others are seen as before."""

import re
import sys
from collections.abc import AsyncIterator, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gputui.client.head_process import HeadProcess
from gputui.head.broadcasts import EVENT_CHARS
from gputui.model.bounds import KEPT_BYTES
from gputui.model.snapshot import HostState, HostStatus
from gputui.protocol.frontend import ChangeHosts
from gputui.protocol.shared import FollowLogs
from tests.clusters import Clusters, LiveCluster
from tests.head import liar
from tests.head.conftest import a_head
from tests.sshd import SshHosts

SEEN_S = 2.0
"""What is shown of an honest host may never be older."""
FLOOD_S = 2.0
GROWTH_BYTES = 100_000_000
HONEST, LIAR, OWNER = "ssh1", liar.NAME, "ssh3"
KEY = b"PRIVATE KEY"

REFUSED = {
    "a_line_of_40_mb_before_the_greeting": "a line of more than 1048576 bytes",
    "a_greeting_that_is_no_json": "its Python is not what it says",
    "a_greeting_that_is_nested_deeply": "its Python is not what it says",
    "last_lines_of_20_mib": "the command that starts Python failed (exit status 1)",
    "an_old_python": "Python 3.6.9",
    "a_clock_of_another_day": "its clock is 3 days, ",
    "an_old_dask": "dask 2020.1",
}
"""What a host is refused for before it is accepted, and the reason."""

FAILED = {
    "telemetry_of_63_mib": "a line of more than 1048576 bytes",
    "the_end_of_a_worker_of_another_host": "'ssh1:cpu0', which is no worker of this host",
    "readings_of_a_worker_of_another_host": "'ssh1:cpu0', which is no worker of this host",
    "readings_of_a_gpu_of_another_host": "GPU-of-another, a GPU of ssh3",
    "a_gpu_of_another_host_in_later_facts": "the same machine as ssh3",
    "thousands_of_gpus": "Expected `array` of length <= 512 - at `$.devices`",
    "cpus_without_number_in_later_facts": "Expected `int` <= 4096 - at `$.cpus`",
    "an_old_python_in_later_facts": "Python 3.6.9",
    "restarts_without_number": "Expected `int` <= 1000000 - at `$.running[0].restarts`",
    "an_absurd_reading": "at `$.devices[0].utilization_percent`",
    "an_address_of_a_mebibyte": "Expected `str` of length <= 512 - at `$.address`",
    "one_gpu_twice": "its agent reports one GPU twice",
    "events_without_end": "its agent reports more than 100 events a second",
}
"""What fails a host that was accepted, and the reason."""

FLOODS = [
    "lines_without_end_before_the_greeting",
    "long_events_without_end",
    "facts_without_end",
    "log_lines_without_end",
    "telemetry_without_end",
    "errors_without_end",
]


EVERY_TIME = (
    "a_line_of_40_mb_before_the_greeting",
    "a_greeting_that_is_no_json",
    "an_old_python",
    "telemetry_of_63_mib",
    "readings_of_a_gpu_of_another_host",
    "the_end_of_a_worker_of_another_host",
    "cpus_without_number_in_later_facts",
    "restarts_without_number",
    "events_without_end",
    "facts_without_end",
    "log_lines_without_end",
    "errors_without_end",
)


def some(lies: Iterable[str]) -> list[Any]:
    """Return lies as parameters, most of which are told by `pytest -m long` only."""
    return [lie if lie in EVERY_TIME else pytest.param(lie, marks=pytest.mark.long) for lie in lies]


class Watched:
    """A cluster with honest hosts, and one that lies from time to time."""

    def __init__(self, cluster: LiveCluster, scripts: Path) -> None:
        self.cluster = cluster
        self._scripts = scripts
        self._rss_before = memory_of(cluster.head.pid, "VmRSS")
        self._pid = cluster.workers[f"{HONEST}:cpu0"].pid
        self.last_at = cluster.snapshot.taken_at
        self.longest_s = 0.0
        """The longest time for which nothing new of the honest host was to be seen."""

    @property
    def grown_bytes(self) -> int:
        """How much more memory the head has ever taken than it had before the lie."""
        return memory_of(self.cluster.head.pid, "VmHWM") - self._rss_before

    def host(self, name: str) -> HostStatus | None:
        """Return a host as the newest snapshot has it, and note how old what it says is."""
        snapshot = self.cluster.snapshot
        hosts = {host.name: host for host in snapshot.hosts}
        read_s = snapshot.taken_at - hosts[HONEST].read_at
        self.longest_s = max(self.longest_s, read_s, snapshot.taken_at - self.last_at)
        self.last_at = snapshot.taken_at
        return hosts.get(name)

    async def tell(self, lie: str) -> None:
        """Add the host that tells this lie."""
        script = script_of(self._scripts, lie)
        await self.cluster.request(ChangeHosts(0, f"{LIAR} python={script}"))

    async def end(self) -> None:
        await self.cluster.request(ChangeHosts(0, remove=(LIAR,)))
        await self.cluster.until(lambda: self.host(LIAR) is None)
        assert set(states(self.cluster).values()) == {HostState.READY}
        assert self.cluster.workers[f"{HONEST}:cpu0"].pid == self._pid
        assert self.cluster.snapshot.workers_up == 1
        assert self.longest_s < SEEN_S
        assert self.grown_bytes < GROWTH_BYTES


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lies")


@pytest.fixture(scope="module")
def head(openssh_hosts: SshHosts, scripts: Path) -> Iterator[tuple[HeadProcess, str]]:
    owner = script_of(scripts, "an_honest_host")
    hosts = f"{HONEST} gpus=none workers=1 nthreads=1 memory=512MiB\n{OWNER} python={owner}"
    with a_head(hosts, ssh_config=str(openssh_hosts.config)) as head:
        yield head


@pytest.fixture
async def watched(head: tuple[HeadProcess, str], scripts: Path) -> AsyncIterator[Watched]:
    cluster = await Clusters().attach(*head)
    try:
        await cluster.until(
            lambda: (
                cluster.snapshot
                and cluster.snapshot.workers_up == 1
                and states(cluster) == {HONEST: HostState.READY, OWNER: HostState.READY}
                and all(h.read_at for h in cluster.snapshot.hosts if h.name == HONEST)
            )
        )
        watched = Watched(cluster, scripts)
        yield watched
        if watched.host(LIAR):
            await cluster.request(ChangeHosts(0, remove=(LIAR,)))
    finally:
        await cluster.link.close()


def states(cluster: LiveCluster) -> dict[str, HostState]:
    return {host.name: host.state for host in cluster.snapshot.hosts}


def script_of(folder: Path, lie: str) -> Path:
    """Write the script that plays a lie, and return it."""
    script = folder / lie
    script.write_text(f"#!{sys.executable} -B\n{Path(liar.__file__).read_text()}")
    script.chmod(0o700)
    return script


def heard_by(script: Path) -> bytes:
    return Path(f"{script}.heard").read_bytes()


def memory_of(pid: int, name: str) -> int:
    """Return VmRSS or VmHWM, its highest, of a process. Source: proc_pid_status(5)."""
    status = Path(f"/proc/{pid}/status").read_text()
    return 1024 * int(re.search(rf"^{name}:\s+(\d+) kB", status, re.MULTILINE)[1])


@pytest.mark.slow
@pytest.mark.parametrize("lie", some([*REFUSED, *FAILED]))
async def test_a_lie_fails_the_host_that_tells_it_alone(
    watched: Watched, scripts: Path, lie: str
) -> None:
    await watched.tell(lie)
    reason = {**REFUSED, **FAILED}[lie]
    await watched.cluster.until(lambda: (h := watched.host(LIAR)) and h.state is HostState.FAILED)
    status = watched.host(LIAR)
    assert reason in status.reason
    said = "".join((status.reason, status.hint, *status.stderr_tail))
    assert len(said) <= KEPT_BYTES["reason, hint, last lines"]
    assert (KEY in heard_by(scripts / lie)) == (lie in FAILED)
    await watched.end()


@pytest.mark.slow
@pytest.mark.parametrize("lie", some(FLOODS))
async def test_a_flood_is_not_felt_by_others(watched: Watched, lie: str) -> None:
    watched.cluster.link.send(FollowLogs(True))
    await watched.tell(lie)
    ends_at = watched.cluster.snapshot.taken_at + FLOOD_S
    await watched.cluster.until(lambda: watched.host(LIAR) and watched.last_at > ends_at)
    assert watched.host(LIAR).state in (HostState.PROBING, HostState.READY), watched.host(
        LIAR
    ).reason
    assert max((len(event.text) for event in watched.cluster.events), default=0) <= EVENT_CHARS
    await watched.end()
