"""Measure what messages cost on the wire, as lines and back: `python -m tests.benchmarks.wire`.

    python -m tests.benchmarks.wire [HOSTS]      # 1000 by default, of 8 GPUs each

A host's telemetry and a snapshot of all hosts: µs to make a line of it and to make a message of
that again, and bytes; as they stay on this machine, and compressed as they leave it. Every reading
and count changes from one to the next, as in the benchmark of a fleet; where the cluster is idle,
only its clocks do. Medians, of all hosts and of some snapshots.
"""

import argparse
import random
import statistics
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from gputui.fleet.worker_table import WorkerTable
from gputui.model.plan import WorkerSpec
from gputui.model.snapshot import (
    ClusterState,
    HostState,
    HostStatus,
    SchedulerState,
    SchedulerStatus,
    Snapshot,
)
from gputui.process.lifetime import look_rarely
from gputui.protocol import codec, typed_codec
from gputui.protocol.agent import FromAgent, Telemetry, WorkerReady
from gputui.protocol.frontend import SnapshotTaken, ToFrontend
from gputui.protocol.streams import WINDOW_BITS, deflating
from tests.benchmarks.fleet import VARIANTS, Agent, counts_of, host_names
from tests.fleet.simulated import Head

Result = TypeVar("Result")
GPUS = 8
SNAPSHOTS = 9


class Wire:
    """One direction of a channel, and what each message cost on it."""

    def __init__(
        self, encode: Callable[[Any], bytes], receives: Any, *, compressed: bool = False
    ) -> None:
        self._encode = encode
        self._receives = receives
        self._deflate = deflating() if compressed else None
        self._inflate = zlib.decompressobj(wbits=WINDOW_BITS)
        self.costs: list[tuple[float, float, int]] = []
        """For each message: µs to make its line, µs to make a message of it, bytes."""

    def carry(self, message: Any) -> None:
        """Send a message, and take it."""
        encode_us, sent = timed(lambda: self._sent(message))
        decode_us, arrived = timed(lambda: self._arrived(sent))
        assert arrived == message
        self.costs.append((encode_us, decode_us, len(sent)))

    def _sent(self, message: Any) -> bytes:
        line = self._encode(message)
        return self._deflate(line) if self._deflate else line

    def _arrived(self, sent: bytes) -> Any:
        if self._deflate:
            sent = self._inflate.decompress(sent)
        return typed_codec.decode(sent, self._receives)


def timed(work: Callable[[], Result]) -> tuple[float, Result]:
    """Return how many µs of CPU some work took, and its result."""
    began = time.thread_time()
    result = work()
    return 1e6 * (time.thread_time() - began), result


def agents(hosts: int) -> list[Agent]:
    """Return the agents of so many hosts, each with a worker on every GPU."""
    found = []
    for number, name in enumerate(host_names(hosts), 1):
        agent = Agent(name, number, GPUS)
        for spec in specs(name):
            agent.start(spec)
        found.append(agent)
    return found


def specs(host: str) -> list[WorkerSpec]:
    """Return a worker for each GPU of a host."""
    return [
        WorkerSpec(f"{host}:gpu{label}", host, f"GPU-{host}-{label}", 1, 2**33)
        for label in range(GPUS)
    ]


def snapshots(readings: Sequence[Sequence[Telemetry]]) -> Iterator[Snapshot]:
    """Yield a snapshot for each of the agents' turns, as a head takes it."""
    names, rng = host_names(len(readings)), random.Random(0)
    table = WorkerTable({}, lambda host: "", **Head().for_workers())
    for host in names:
        for spec in specs(host):
            table.expect(spec, sent=True)
            table.ready(WorkerReady(spec.name, "tls://10.1.0.1:40000", spec.device_uuid))
    counts = [counts_of(table.up, rng) for _ in range(VARIANTS)]
    began = time.time()
    scheduler = SchedulerStatus(SchedulerState.RUNNING, "tls://10.0.0.1:40000")
    for number in range(SNAPSHOTS):
        read = [turns[number % len(turns)] for turns in readings]
        table.count(counts[number % VARIANTS])
        hosts = tuple(
            HostStatus(
                name, HostState.READY, began, reading=t.host, read_at=t.at, devices=t.devices
            )
            for name, t in zip(names, read, strict=True)
        )
        workers = table.statuses({each.name: each for t in read for each in t.workers})
        yield Snapshot(
            number, began + number, "wire", ClusterState.RUNNING, began, scheduler, hosts, workers
        )


def show(what: str, costs: Sequence[tuple[float, float, int]]) -> None:
    """Print the medians of some messages."""
    encode_us, decode_us, size = map(statistics.median, zip(*costs, strict=True))
    print(f"{what:<42}{encode_us:>11,.0f} µs {decode_us:>11,.0f} µs {size:>11,.0f} bytes")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("hosts", type=int, nargs="?", default=1000)
    hosts: int = parser.parse_args().hosts
    readings = [[agent.reading(turn) for turn in range(VARIANTS)] for agent in agents(hosts)]
    look_rarely()
    print(f"{'':<42}{'to a line':>14} {'and back':>14}")
    for how, compressed in (("", False), (", compressed", True)):
        wires = [Wire(codec.encode, FromAgent, compressed=compressed) for _ in readings]
        for turn in (*range(VARIANTS), 0):
            for wire, turns in zip(wires, readings, strict=True):
                wire.carry(turns[turn])
        show(f"a host's telemetry{how}", [cost for wire in wires for cost in wire.costs[1:]])
        screen = Wire(typed_codec.encode, ToFrontend, compressed=compressed)
        for snapshot in snapshots(readings):
            screen.carry(SnapshotTaken(snapshot))
        show(f"a snapshot of {hosts * GPUS:,} GPUs{how}", screen.costs[1:])
        idle = Wire(typed_codec.encode, ToFrontend, compressed=compressed)
        for number in range(SNAPSHOTS):
            idle.carry(SnapshotTaken(at_rest(snapshot, number)))
        show(f"  idle{how}", idle.costs[1:])


def at_rest(snapshot: Snapshot, number: int) -> Snapshot:
    """Return a snapshot some seconds later in which nobody computes anything."""
    hosts = tuple(
        replace(
            host,
            read_at=snapshot.taken_at + number,
            devices=tuple(replace(each, utilization_percent=0.0) for each in host.devices),
        )
        for host in snapshot.hosts
    )
    workers = tuple(
        replace(each, cpu_percent=2.0, executing=0, ready=0, in_memory=0, managed_bytes=0)
        for each in snapshot.workers
    )
    return replace(
        snapshot, sequence=number, taken_at=snapshot.taken_at + number, hosts=hosts, workers=workers
    )


if __name__ == "__main__":
    main()
