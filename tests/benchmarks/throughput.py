"""What watching a large fleet costs the work, and the head that watches.

    python -m tests.benchmarks.throughput                    # 125 hosts of 8 simulated GPUs

Empty tasks per second on a gputui cluster to which the telemetry of all those GPUs arrives over
SSH, against Dask's own scheduler and workers over TLS with the same settings. They take turns:
while one is measured, every process of the other is stopped. The simulated hosts run with the
first, at the lowest priority, though in a real fleet they would be other machines.
"""

import argparse
import contextlib
import os
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from distributed import Client, wait

from gputui import GPUCluster
from gputui.model.snapshot import Session
from gputui.process.procfs import TICKS_PER_S, process_stat
from gputui.protocol.connection_file import find_cluster
from gputui.protocol.frontend import HELLO, Attach
from gputui.protocol.typed_codec import encode
from tests.benchmarks import plain
from tests.benchmarks.sides import own_folders, row
from tests.processes import processes_of

LEASE_S = 3600.0
"""A head that is stopped for a while is not gone."""
KNOWN_TASKS = 100_000


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, default=125)
    parser.add_argument("--gpus", type=int, default=8, help="on each of them")
    parser.add_argument("--workers", type=int, default=2, help="real ones, on this machine")
    parser.add_argument("--tasks", type=int, default=4_000)
    parser.add_argument("--repeats", type=int, default=11)
    parser.add_argument("--seconds", type=int, default=20, help="to watch the head for")
    arguments = parser.parse_args()
    hosts = f"localhost gpus=none workers={arguments.workers} nthreads=1"
    hosts += f"\nsim[001-{arguments.hosts:03d}]" if arguments.hosts else ""
    with (
        own_folders() as folder,
        _simulated(folder, arguments.hosts, arguments.gpus) as simulator,
        GPUCluster(hosts, ssh_config=str(folder / "ssh_config"), lease_s=LEASE_S) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        pids = (simulator, *processes_of(cluster.cluster_id))
        ours = Contender(client, pids, client.run_on_scheduler(os.getpid))
        throughput(ours, arguments)
        cost_of_watching(cluster, client, arguments.seconds)


@contextlib.contextmanager
def _simulated(folder: Path, hosts: int, gpus: int) -> Iterator[int]:
    """Run the simulated hosts; give the pid of their process."""
    command = [sys.executable, "-m", "tests.benchmarks.simulated", folder, str(hosts), str(gpus)]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, preexec_fn=lambda: os.nice(19)
    )
    assert process.stdout
    try:
        process.stdout.readline()
        yield process.pid
    finally:
        process.kill()
        process.wait()


@dataclass(frozen=True, slots=True)
class Speed:
    """How fast empty tasks went."""

    per_s: float
    scheduler_us: float
    """Of CPU for each task; other work on this machine does not touch it."""


@dataclass(frozen=True, slots=True)
class Contender:
    """A cluster's client and processes."""

    client: Client
    pids: tuple[int, ...]
    scheduler: int

    def tell(self, number: signal.Signals) -> None:
        """Send all its processes a signal."""
        for pid in self.pids:
            os.kill(pid, number)

    def speed(self, tasks: int) -> Speed:
        """Run so many empty tasks."""
        with self.client.as_current():
            before, started = _ticks(self.scheduler), time.perf_counter()
            wait(self.client.map(abs, range(tasks), pure=False))
            elapsed_s = time.perf_counter() - started
        ticks = _ticks(self.scheduler) - before
        return Speed(tasks / elapsed_s, 1e6 * ticks / TICKS_PER_S / tasks)


def throughput(ours: Contender, arguments: argparse.Namespace) -> None:
    """Print the tasks per second of a gputui cluster and of Dask's own."""
    with (
        plain.running(arguments.workers) as other,
        Client(other.address, security=other.security, set_as_default=False) as client,
    ):
        client.wait_for_workers(arguments.workers)
        theirs = Contender(client, other.pids, other.pids[0])
        pairs = [_pair(ours, theirs, arguments.tasks) for _ in range(arguments.repeats + 1)][1:]
    gpus = arguments.hosts * arguments.gpus
    row(f"empty tasks, {gpus:,} GPUs watched", "gputui", "plain TLS", "ratio", "bar")
    rates = [(mine.per_s, other.per_s) for mine, other in pairs]
    costs = [(mine.scheduler_us, other.scheduler_us) for mine, other in pairs]
    row("  per second", *_medians(rates, ",.0f"), "≥ 0.97 ×")
    row("  the scheduler's CPU for each, µs", *_medians(costs, ",.0f"))


def _medians(pairs: Sequence[tuple[float, float]], form: str) -> tuple[str, str, str]:
    """Return the medians of both sides, and of the ratios."""
    ours, theirs = (statistics.median(side) for side in zip(*pairs, strict=True))
    ratio = statistics.median(mine / other for mine, other in pairs)
    return f"{ours:{form}}", f"{theirs:{form}}", f"{ratio:.3f} ×"


def _pair(ours: Contender, theirs: Contender, tasks: int) -> tuple[Speed, Speed]:
    """Return the speed of each, while the other is stopped."""
    speeds = []
    for one, other in ((ours, theirs), (theirs, ours)):
        other.tell(signal.SIGSTOP)
        try:
            one.speed(tasks // 8)
            speeds.append(one.speed(tasks))
        finally:
            other.tell(signal.SIGCONT)
    return speeds[0], speeds[1]


def cost_of_watching(cluster: GPUCluster, client: Client, seconds: int) -> None:
    """Print what head and scheduler use of a core while nothing computes, and a frontend looks."""
    connection_file = find_cluster(cluster.name)
    assert connection_file
    pids = (connection_file.pid, client.run_on_scheduler(os.getpid))
    row("\nof a core, nothing computing", "head", "scheduler", "bar")
    alone = _percent(pids, seconds)
    row("  no frontend", *map(_cell, alone))
    with _frontend(connection_file.socket) as frontend:
        looked_at = _percent(pids, seconds)
        row("  a frontend at 1 Hz", *map(_cell, looked_at))
        tasks = _know_tasks(client)
        knowing = _percent(pids, seconds)
        row(f"  and {tasks:,} tasks known", *map(_cell, knowing))
    row("snapshots for a frontend", _cell(looked_at[0] - alone[0]), "", "≤ 5.0 %")
    row("  each", f"{frontend.bytes / max(1, frontend.snapshots) / 1e3:,.0f} kB")
    added = [after - before for before, after in zip(looked_at, knowing, strict=True)]
    row(f"{tasks:,} tasks", *map(_cell, added), "nothing")


def _know_tasks(client: Client) -> int:
    """Have the scheduler know tasks that wait for one that takes for ever."""
    first = client.submit(time.sleep, 3600)
    client.waiting_for_ever = client.map(lambda _, first: first, range(KNOWN_TASKS), first=first)
    known = 0
    while known < KNOWN_TASKS:
        time.sleep(1)
        known = client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks))
    time.sleep(5)
    return known


def _percent(pids: Iterable[int], seconds: int) -> list[float]:
    """Return the share of a core that each process uses."""
    before = [_ticks(pid) for pid in pids]
    time.sleep(seconds)
    return [
        100 * (_ticks(pid) - ticks) / TICKS_PER_S / seconds
        for pid, ticks in zip(pids, before, strict=True)
    ]


def _ticks(pid: int) -> int:
    stat = process_stat(pid)
    assert stat
    return stat.cpu_ticks


def _cell(percent: float) -> str:
    return f"{percent:.1f} %"


@dataclass(slots=True)
class FrontendConnection:
    """What a frontend was sent."""

    snapshots: int = 0
    bytes: int = 0


@contextlib.contextmanager
def _frontend(path: str) -> Iterator[FrontendConnection]:
    """Attach a frontend that looks on, and only counts what it gets."""
    frontend = FrontendConnection()
    with socket.socket(socket.AF_UNIX) as link:
        link.connect(path)
        link.sendall(HELLO + encode(Attach(Session("screen"), True)))
        thread = threading.Thread(target=_count, args=(link, frontend), daemon=True)
        thread.start()
        yield frontend
        link.shutdown(socket.SHUT_RDWR)
        thread.join()


def _count(link: socket.socket, frontend: FrontendConnection) -> None:
    with link.makefile("rb") as lines:
        for line in lines:
            if b'"SnapshotTaken"' in line[:30]:
                frontend.snapshots += 1
                frontend.bytes += len(line)


if __name__ == "__main__":
    main()
