"""A head's stand-in for what is measured of the screen: `python -m tests.benchmarks.steady …`.

`steady 125x8 SOCKET` serves a cluster at work: once a second, each reading that a row shows (of a
GPU, its worker, a host) takes another value with a probability of `SHARE`; with `restless`, all of
them do. What the GPUs did in the hour before comes first, as from a head. `hour` serves what a
simulated cluster does in an hour, tasks, logs and events too, as fast as a frontend is likely to
take it. When the first snapshot was sent is printed, by the monotonic clock. Ends with its stdin.
"""

import asyncio
import contextlib
import gc
import random
import sys
import time
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from gputui.demo import DemoLink, Shape, Simulator
from gputui.protocol.codec import encode
from gputui.protocol.frontend import HistoryTaken, SnapshotTaken, ToFrontend
from gputui.readings import DeviceReading, HostReading
from gputui.series import COARSE_ROWS, FINE_ROWS, METRICS, pack
from gputui.snapshot import HostStatus, Snapshot, WorkerStatus

SHARE = 0.15
"""Of the readings, how many are others than a second before."""
WARM_UP_S = 100
HOUR_S = 3600
HOUR_STEP_S = 0.025
"""Between two of the hour's snapshots; a frontend at 1,000 GPUs takes one in less."""
GIB, MIB = 2**30, 2**20

Change = Callable[[float, random.Random], float]
Value = TypeVar("Value", DeviceReading, WorkerStatus, HostReading)


def near(step: float, low: float, high: float) -> Change:
    """Return a change by one to five steps, up or down, within bounds."""

    def change(value: float, rng: random.Random) -> float:
        by = step * rng.randint(1, 5)
        up = value - by < low or (value + by <= high and rng.random() < 0.5)
        return value + by if up else value - by

    return change


OF_DEVICE: dict[str, Change] = {
    "utilization_percent": near(1, 70, 100),
    "memory_used_bytes": near(GIB // 8, 40 * GIB, 70 * GIB),
    "temperature_c": near(1, 55, 75),
    "power_w": near(4, 400, 690),
    "sm_clock_mhz": near(15, 1500, 1980),
}
OF_WORKER: dict[str, Change] = {
    "cpu_percent": near(1, 80, 110),
    "rss_bytes": near(16 * MIB, 600 * MIB, 900 * MIB),
    "ready": near(1, 0, 9),
    "spilled_bytes": near(64 * MIB, GIB, 2 * GIB),
}
OF_HOST: dict[str, Change] = {
    "cpu_percent": near(1, 5, 60),
    "memory_used_bytes": near(GIB // 2, 100 * GIB, 200 * GIB),
    "load_1m": near(0.1, 2, 12),
    "network_receive_bytes_per_s": near(MIB, 10 * MIB, 400 * MIB),
    "network_send_bytes_per_s": near(MIB, 10 * MIB, 400 * MIB),
}


def altered(value: Value, changes: dict[str, Change], share: float, rng: random.Random) -> Value:
    """Return readings of which so many, on average, are others."""
    chosen = {
        name: change(getattr(value, name) or 0, rng)
        for name, change in changes.items()
        if rng.random() < share
    }
    return replace(value, **chosen) if chosen else value


def steady(simulator: Simulator, share: float) -> Iterator[list[ToFrontend]]:
    """Give snapshots of a cluster at work, a second apart in its own time."""
    rng = random.Random(0)
    at = simulator.started_at + WARM_UP_S
    simulator.step(at - 1)
    snapshot = simulator.step(at)
    before: Iterable[ToFrontend] = past(snapshot, rng)
    while True:
        yield [*before, SnapshotTaken(snapshot)]
        before = ()
        at += 1
        snapshot = a_second_later(snapshot, at, share, rng)


def past(snapshot: Snapshot, rng: random.Random) -> Iterator[HistoryTaken]:
    """Give an hour of every host, no two readings in a row alike."""
    size = (FINE_ROWS + COARSE_ROWS) * len(METRICS)
    for host in snapshot.hosts:
        keys = ("", *(device.uuid for device in host.devices))
        values = array("H", [rng.randrange(10_000) for _ in range(size)]) * len(keys)
        at = snapshot.taken_at
        yield HistoryTaken(host.name, keys, at, FINE_ROWS, at, COARSE_ROWS, pack(values))


def a_second_later(snapshot: Snapshot, at: float, share: float, rng: random.Random) -> Snapshot:
    """Return the next snapshot, with so many of the readings changed."""
    return replace(
        snapshot,
        sequence=snapshot.sequence + 1,
        taken_at=at,
        hosts=tuple(_later(host, at, share, rng) for host in snapshot.hosts),
        workers=tuple(altered(worker, OF_WORKER, share, rng) for worker in snapshot.workers),
        spans=tuple(replace(span, started_at=span.started_at + 1) for span in snapshot.spans),
    )


def _later(host: HostStatus, at: float, share: float, rng: random.Random) -> HostStatus:
    devices = tuple(altered(device, OF_DEVICE, share, rng) for device in host.devices)
    reading = altered(host.reading, OF_HOST, share, rng)
    return replace(host, devices=devices, reading=reading, read_at=at)


def hour(simulator: Simulator) -> Iterator[list[ToFrontend]]:
    """Give what a simulated cluster does in an hour, second by second, and then its end."""
    begun = simulator.started_at + WARM_UP_S
    for second in range(HOUR_S):
        snapshot = simulator.step(begun + second)
        yield [SnapshotTaken(snapshot), *simulator.event_log.take()]
    print("over", flush=True)


LOADS: dict[str, Callable[[Simulator], Iterator[list[ToFrontend]]]] = {
    "steady": partial(steady, share=SHARE),
    "restless": partial(steady, share=1.0),
    "hour": hour,
}


async def serve(shape: Shape, socket: Path, load: str) -> None:
    """Serve a load to every frontend that connects, until stdin ends."""
    interval_s = HOUR_STEP_S if load == "hour" else 1.0

    async def meet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        simulator = Simulator(shape, started_at=time.time() - WARM_UP_S, troubles=load == "hour")
        await reader.readline()
        writer.write(encode(DemoLink(simulator).attached))
        due = time.monotonic()
        with contextlib.suppress(ConnectionError, asyncio.CancelledError):
            for number, messages in enumerate(LOADS[load](simulator)):
                lines = [encode(message) for message in messages]
                if number == 0:
                    print(time.monotonic(), flush=True)
                writer.writelines(lines)
                await writer.drain()
                due += interval_s
                await asyncio.sleep(due - time.monotonic())

    async with await asyncio.start_unix_server(meet, socket):
        await asyncio.to_thread(sys.stdin.buffer.read)


if __name__ == "__main__":
    asked_load, size, path = sys.argv[1:]
    gc.disable()  # nothing here is garbage in cycles, and what is served must not come late
    asyncio.run(serve(Shape.parse(size), Path(path), asked_load))
