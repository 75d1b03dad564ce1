"""A head's stand-in for what is measured of the screen: `python -m tests.benchmarks.steady …`.

`steady 125x8 SOCKET` serves a cluster at work: once a second, each reading that a row shows (of a
GPU, its worker, a host) takes another value with a probability of `SHARE`; with `restless`, all of
them do. What the GPUs did in the hour before comes first, as from a head. `hour` serves what a
simulated cluster does, tasks, logs and events too, for an hour of its time, as fast as a frontend
is likely to take it. `watching` is `steady` without workers: others claim or use half of the GPUs.
When the first snapshot was sent is printed, by the monotonic clock. Ends with its stdin.
"""

import asyncio
import contextlib
import gc
import os
import random
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from gputui.demo import shape
from gputui.head.cluster_view import HISTORY_AFTER_S
from gputui.model.readings import (
    Claim,
    DeviceProcess,
    DeviceReading,
    HostReading,
    Note,
    Owner,
)
from gputui.model.series import COARSE_ROWS, FINE_ROWS, HistoryTaken, Metric
from gputui.model.snapshot import (
    ClusterState,
    HostStatus,
    SchedulerState,
    SchedulerStatus,
    Snapshot,
    WorkerStatus,
)
from gputui.protocol.frontend import (
    EventHappened,
    FromFrontend,
    SnapshotTaken,
    ToFrontend,
)
from gputui.protocol.shared import FollowLogs, LogLines
from gputui.protocol.streams import SocketStream
from gputui.protocol.typed_codec import TypedChannel
from tests.series import packed
from tests.timelapse import START, Timelapse

SHARE = 0.15
"""Of the readings, how many are others than a second before."""
LIVED_S = 100.0
"""How much of a cluster's life is computed beforehand."""
HOUR_S = 3600
HOUR_STEP_S = 0.025
"""Between two of the hour's snapshots; a frontend at 1,000 GPUs takes one in less."""
REST_VARIABLE = "GPUTUI_BENCHMARK_REST_S"
"""In the environment: how long a frontend that attached rests before the first snapshot."""
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


def steady(
    lived: Timelapse, share: float, first: Callable[[Snapshot], Snapshot] = lambda each: each
) -> Iterator[list[ToFrontend]]:
    """Give snapshots of a cluster at work, a second apart in its own time."""
    rng = random.Random(0)
    at, snapshot = time.time(), lived.snapshot
    assert snapshot
    snapshot = first(later(snapshot, at - snapshot.taken_at))
    before: Iterable[ToFrontend] = past(snapshot, rng)
    while True:
        yield [SnapshotTaken(snapshot), *before]
        before = ()
        at += 1
        snapshot = a_second_later(snapshot, at, share, rng)


def unstarted(snapshot: Snapshot) -> Snapshot:
    """Return the same hosts before any worker: of four GPUs one is claimed and one is in use."""
    note = Note("training", since=snapshot.taken_at, until=snapshot.taken_at + HOUR_S)
    claim = Claim(7, "alice", note)
    process = DeviceProcess(8, Owner.OTHER, "bob", "python train.py", 60 * GIB)
    mine = ({"claim": claim}, {"processes": (process,)}, {}, {})
    hosts = tuple(
        replace(
            host,
            devices=tuple(
                replace(each, **({"processes": ()} | mine[at % 4]))
                for at, each in enumerate(host.devices)
            ),
        )
        for host in snapshot.hosts
    )
    return replace(
        snapshot,
        state=ClusterState.WATCHING,
        scheduler=SchedulerStatus(SchedulerState.NONE),
        hosts=hosts,
        workers=(),
        groups=(),
        runs=(),
        spans=(),
        wanted_workers=0,
    )


def past(snapshot: Snapshot, rng: random.Random) -> Iterator[HistoryTaken]:
    """Give an hour of every host, no two readings in a row alike."""
    for host in snapshot.hosts:
        keys = (host.name, *(device.uuid for device in host.devices))
        width = len(keys) * len(Metric)
        rows = [tuple(rng.choices(range(100), k=width)) for _ in range(FINE_ROWS + COARSE_ROWS)]
        at = snapshot.taken_at
        yield HistoryTaken(host.name, keys, at, FINE_ROWS, at, COARSE_ROWS, packed(rows))


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


def hour(lived: Timelapse) -> Iterator[list[ToFrontend]]:
    """Give what the cluster did while it was lived through, over and over for an hour."""
    length_s, begun = lived.loop.time(), time.time()
    for turn in range(int(HOUR_S / length_s)):
        by_s = begun - START + turn * length_s
        batch: list[ToFrontend] = []
        for message in lived.messages:
            batch.append(_moved(message, by_s, turn * len(lived.messages)))
            if isinstance(message, SnapshotTaken):
                yield batch
                batch = []
    print("over", flush=True)


def _moved(message: ToFrontend, by_s: float, by: int) -> ToFrontend:
    """Return what the cluster says when it does the same again so much later."""
    match message:
        case SnapshotTaken(snapshot):
            moved = later(snapshot, by_s)
            return SnapshotTaken(replace(moved, sequence=snapshot.sequence + by))
        case EventHappened(event):
            moved_event = replace(event, at=event.at + by_s, sequence=event.sequence + by)
            return EventHappened(moved_event)
        case LogLines():
            return replace(message, at=message.at + by_s)
    return message


def later(snapshot: Snapshot, by_s: float) -> Snapshot:
    """Return a snapshot as it would be so much later."""
    return replace(
        snapshot,
        taken_at=snapshot.taken_at + by_s,
        started_at=snapshot.started_at + by_s,
        hosts=tuple(
            replace(host, read_at=host.read_at + by_s) if host.read_at else host
            for host in snapshot.hosts
        ),
        spans=tuple(replace(s, started_at=s.started_at + by_s) for s in snapshot.spans),
    )


async def _begin(link: TypedChannel[ToFrontend, FromFrontend], first: ToFrontend) -> None:
    """Send the first message, and let it be drawn."""
    await asyncio.sleep(float(os.environ.get(REST_VARIABLE, 0)))
    print(time.monotonic(), flush=True)
    link.send(first)
    await asyncio.sleep(HISTORY_AFTER_S)


LOADS: dict[str, Callable[[Timelapse], Iterator[list[ToFrontend]]]] = {
    "steady": partial(steady, share=SHARE),
    "restless": partial(steady, share=1.0),
    "watching": partial(steady, share=SHARE, first=unstarted),
    "hour": hour,
}


def live(shape: tuple[int, int], load: str) -> Timelapse:
    """Return a cluster that has lived for a while."""
    lived = Timelapse(shape, troubles=load == "hour")
    if load == "hour":
        lived.link.send(FollowLogs(True))
    return lived.to(LIVED_S)


async def serve(lived: Timelapse, socket: Path, load: str) -> None:
    """Serve a load to every frontend that connects, until stdin ends."""
    interval_s = HOUR_STEP_S if load == "hour" else 1.0

    async def meet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        link = TypedChannel[ToFrontend, FromFrontend](SocketStream(reader, writer), FromFrontend)
        link.send(lived.link.attached)
        due = time.monotonic()
        with contextlib.suppress(ConnectionError, asyncio.CancelledError):
            for number, messages in enumerate(LOADS[load](lived)):
                if number == 0:
                    await _begin(link, messages.pop(0))
                for message in messages:
                    link.send(message)
                    await link.flush(None)
                if link.broken:
                    return
                due += interval_s
                await asyncio.sleep(due - time.monotonic())

    async with await asyncio.start_unix_server(meet, socket):
        await asyncio.to_thread(sys.stdin.buffer.read)


if __name__ == "__main__":
    asked_load, size, path = sys.argv[1:]
    gc.disable()  # nothing here is garbage in cycles, and what is served must not come late
    with contextlib.closing(live(shape(size), asked_load)) as cluster:
        asyncio.run(serve(cluster, Path(path), asked_load))
