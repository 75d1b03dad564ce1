"""What a cluster's own processes hold in memory: `python -m tests.benchmarks.memory`.

RSS counts a page for each process that has it, PSS shares it out among them; the bars are held
against RSS. Head and scheduler are read with eight workers that have computed, an agent and its
forkserver before any worker; the forkserver without CuPy, which takes what it takes.
"""

import asyncio
import contextlib
import importlib.util
import os
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from distributed import Client

from gputui import GPUCluster
from tests.agent.driving import Driver
from tests.benchmarks.sides import own_folders, row
from tests.processes import processes_of

WORKERS = 8
TASKS = 2000
SETTLED_S = 3.0
"""After which readings of telemetry and counts are under way."""

MB = 1e6


@dataclass(frozen=True, slots=True)
class Held:
    """What a process, or several, hold."""

    rss_bytes: int
    pss_bytes: int

    def __add__(self, other: "Held") -> "Held":
        return Held(self.rss_bytes + other.rss_bytes, self.pss_bytes + other.pss_bytes)


def main() -> None:
    """Measure, and print."""
    row("resident memory", "RSS", "PSS", "bar")
    with own_folders() as folder:
        _print(head_and_scheduler(), ("head", "scheduler"), 130)
        _print(asyncio.run(agent_and_forkserver(folder)), ("agent", "forkserver"), 90)
    if importlib.util.find_spec("cupy"):
        print("CuPy is installed here, and is part of what the forkserver holds")


def _print(found: Mapping[str, Held], counted: tuple[str, ...], bar_mb: int) -> None:
    """Print the parts, and the sum of those that a bar is for."""
    for name, each in found.items():
        row(f"  {name}", f"{each.rss_bytes / MB:.1f} MB", f"{each.pss_bytes / MB:.1f} MB")
    total = sum((found[name] for name in counted), Held(0, 0))
    cells = f"{total.rss_bytes / MB:.1f} MB", f"{total.pss_bytes / MB:.1f} MB"
    row(" and ".join(counted), *cells, f"≤ {bar_mb} MB")


def head_and_scheduler() -> Mapping[str, Held]:
    """Return what each part of a cluster holds after its workers have computed."""
    hosts = f"localhost gpus=none workers={WORKERS} nthreads=1"
    with GPUCluster(hosts) as cluster, Client(cluster) as client:
        client.gather(client.map(abs, range(TASKS)))
        time.sleep(SETTLED_S)
        return parts(processes_of(cluster.cluster_id))


async def agent_and_forkserver(folder: Path) -> Mapping[str, Held]:
    """Return what the processes of a host hold as soon as it could start workers."""
    driver = Driver(folder)
    await driver.connect()
    await asyncio.sleep(2 * SETTLED_S)  # the forkserver imports for a second
    found = parts(processes_of(driver.cluster_id))
    await driver.shut_down()
    await driver.relay.wait()
    return found


def parts(pids: Iterable[int]) -> dict[str, Held]:
    """Return what the processes hold by what they are; those that are several as one sum."""
    found: dict[str, Held] = {}
    for pid in pids:
        with contextlib.suppress(OSError):
            name = _part(pid)
            found[name] = found.get(name, Held(0, 0)) + held(pid)
    return found


def held(pid: int) -> Held:
    """Return what a process holds; raises OSError where it is gone."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    kib = {name: int(value) for name, value in re.findall(r"^(Rss|Pss): +(\d+)", text, re.M)}
    return Held(kib["Rss"] * 1024, kib["Pss"] * 1024)


def _part(pid: int) -> str:
    """Return what a process of a cluster is; raises OSError where it is gone.

    A relay forks its agent, and a forkserver its workers, with one command line for both.
    """
    words, above = _words(pid), _words(_parent(pid))
    if "forkserver" in words:
        return "workers" if "forkserver" in above else "forkserver"
    if "relay" in words:
        return "relay" if _parent(pid) == os.getpid() or "gputui.head" in above else "agent"
    if "gputui.head.scheduler" in words:
        return "scheduler"
    return "head" if "gputui.head" in words else "other"


def _words(pid: int) -> set[str]:
    return set(Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0"))


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


if __name__ == "__main__":
    main()
