"""A large graph stalls the scheduler's loop: what goes on meanwhile, and who is lost.

    python -m tests.benchmarks.stalled

A client of its own submits an array of ever more chunks, until the loop has not answered for five
seconds. The lease is shorter than that: agents that heard nothing would have ended their workers.
"""

import asyncio
import sys
import time
from dataclasses import dataclass, field
from itertools import pairwise

from gputui.client.head_connection import HeadConnection
from gputui.model.snapshot import HostState, SchedulerState, Snapshot
from gputui.protocol.frontend import SnapshotTaken
from tests.benchmarks.sides import own_folders, row
from tests.clusters import Clusters

NAME = "stalled"
WORKERS = 4
HOSTS = f"localhost gpus=none workers={WORKERS} nthreads=1"
LEASE_S = 4.0
STALL_S = 5.0
CHUNKS = (100_000, 200_000, 400_000, 800_000)


@dataclass(slots=True)
class Seen:
    """Every snapshot of one graph, and when it came."""

    snapshots: list[tuple[float, Snapshot]] = field(default_factory=list)

    @property
    def stalled(self) -> list[tuple[float, Snapshot]]:
        """Those that say that the scheduler is busy."""
        busy = SchedulerState.BUSY
        return [(at, each) for at, each in self.snapshots if each.scheduler.state is busy]

    @property
    def stall_s(self) -> float:
        """How long the loop did not answer."""
        return max((each.scheduler.busy_s for _, each in self.stalled), default=0.0)

    @property
    def gaps_s(self) -> list[float]:
        """The times between snapshots while it did not."""
        return [after - before for (before, _), (after, _) in pairwise(self.stalled)]

    @property
    def ages_s(self) -> list[float]:
        """How old the agent's telemetry was in each snapshot while it did not."""
        return [
            each.taken_at - host.read_at
            for _, each in self.stalled
            for host in each.hosts
            if host.read_at is not None
        ]

    def lost(self, workers: int) -> int:
        """Return how many workers were missing, or another process than before, at the end."""
        _, last = self.snapshots[-1]
        return workers - last.workers_up + sum(worker.restarts for worker in last.workers)

    @property
    def unsettled(self) -> int:
        """In how many snapshots a host was anything but ready."""
        return sum(host.state is not HostState.READY for _, s in self.snapshots for host in s.hosts)


def main() -> None:
    """Stall a scheduler, or be the client that does."""
    if sys.argv[1:]:
        submit(int(sys.argv[1]))
        return
    with own_folders():
        asyncio.run(_measure())


def submit(chunks: int) -> None:
    """Submit a graph, and cancel it when the scheduler answers again."""
    import dask.array as da
    from distributed import Client

    import gputui

    with gputui.connect(NAME) as cluster, Client(cluster) as client:
        future = client.compute((da.ones(chunks, chunks=1) + 1).sum())
        while not client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks)):
            time.sleep(0.1)
        future.cancel()


async def _measure() -> None:
    clusters = Clusters()
    cluster = await clusters.start(HOSTS, NAME, lease_s=LEASE_S)
    try:
        await cluster.up(WORKERS)
        for chunks in CHUNKS:
            seen = await _look(cluster.socket, chunks)
            if seen.stall_s >= STALL_S:
                break
    finally:
        await clusters.close()
    _print(chunks, seen)


async def _look(socket: str, chunks: int) -> Seen:
    """Return what a frontend saw, from before the graph until the scheduler answers again."""
    seen = Seen()
    looking = asyncio.create_task(_keep(socket, seen))
    client = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.benchmarks.stalled", str(chunks))
    )
    if await client.wait():
        raise RuntimeError("the client failed")
    while seen.snapshots[-1][1].scheduler.state is not SchedulerState.RUNNING:
        await asyncio.sleep(0.1)
    looking.cancel()
    return seen


async def _keep(socket: str, seen: Seen) -> None:
    """Keep every snapshot that a frontend gets."""
    link = await HeadConnection.open(socket, frontend="screen", snapshots=True)
    try:
        async for message in link.messages():
            if isinstance(message, SnapshotTaken):
                seen.snapshots.append((time.monotonic(), message.snapshot))
    finally:
        await link.close()


def _print(chunks: int, seen: Seen) -> None:
    row(f"a graph of {chunks:,} chunks", "seen", "bar")
    row("the scheduler's loop did not answer for", f"{seen.stall_s:.1f} s", f"≥ {STALL_S:g} s")
    row("snapshots meanwhile", str(len(seen.stalled)))
    row("  longest time between two", f"{max(seen.gaps_s):.2f} s", "≤ 2 s")
    row("  oldest telemetry in one", f"{max(seen.ages_s):.2f} s", "≤ 3 s")
    row("the lease", f"{LEASE_S:g} s")
    row("  hosts not ready, in all snapshots", str(seen.unsettled), "0")
    row("workers lost or started again", str(seen.lost(WORKERS)), "0")


if __name__ == "__main__":
    main()
