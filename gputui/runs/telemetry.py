"""A run's telemetry as its file `telemetry.json` has it: its GPUs' readings and its tasks' spans.

The recorder makes it, `records` writes and reads it, playback is made of it. Here it becomes a
Chrome trace, which Perfetto opens: https://ui.perfetto.dev. Pure.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from gputui.model.frozen import frozen
from gputui.model.snapshot import RunStatus

VERSION = 1
MIB = 2**20

Row = tuple[int | None, int | None, int | None]
"""Utilisation in percent, memory in MiB, power in W."""
Span = tuple[int, int, float, float, bool]
"""A task: the numbers of its worker and prefix, when it began, its seconds, whether it failed."""


@frozen
class DeviceTelemetry:
    """One GPU of a run."""

    name: str
    """`host:gpu0`."""
    uuid: str
    rows: Sequence[Row | None]
    """None where it was not read."""
    model: str
    memory_bytes: int | None
    """All that it has."""
    power_limit_w: float | None


@frozen
class Telemetry:
    """The rows and spans of a run, as its file has them."""

    version: int
    step_s: float
    """The seconds of a row."""
    times: Sequence[float]
    """When each row ended; a clock that is put back is seen here."""
    devices: Sequence[DeviceTelemetry]
    names: Sequence[str]
    spans: Sequence[Span]
    one_span_of: int
    """How many tasks each span stands for."""


COUNTERS = (("utilisation", "%"), ("memory", "MiB"), ("power", "W"))
"""The columns of a row."""
US = 1e6


def chrome_trace(run: RunStatus, telemetry: Telemetry) -> bytes:
    """Return a trace as JSON, in UTF-8: Perfetto 52 shows escapes of other characters as such.

    Each host is a process: its workers' tasks are threads, as many to a worker as ran at a time,
    its GPUs' readings counters. Moments are microseconds since the run began.
    Source: "Trace Event Format", the JSON object format.
    """
    import msgspec  # hosts are without it, and tasks there may import gputui.runs

    began, events = run.started_at, [_named("process_name", 0, 0, f"{run.preset} {run.id}")]
    pids: dict[str, int] = {}
    tids: dict[tuple[str, int], int] = {}

    at_s = 0.0
    for stage, seconds in run.timings:
        events.append(_event("X", stage, 0, at_s, dur=round(seconds * US), tid=0))
        at_s += seconds
    lanes: dict[str, list[float]] = defaultdict(list)
    for number, prefix, at, duration_s, erred in sorted(telemetry.spans, key=lambda s: s[2]):
        worker = telemetry.names[number]
        ends = lanes[worker]
        # The first lane whose last task has ended.
        lane = next((n for n, end in enumerate(ends) if end <= at), len(ends))
        ends[lane : lane + 1] = [at + duration_s]
        host, _, label = worker.rpartition(":")
        pid, key = pids.setdefault(host, len(pids) + 1), (worker, lane)
        if key not in tids:
            tids[key] = len(tids) + 1
            name = f"{label} +{lane}" if lane else label
            events.append(_named("thread_name", pid, tids[key], name))
        more = {"cname": "terrible", "args": {"erred": True}} if erred else {}
        place = {"dur": round(duration_s * US), "tid": tids[key]}
        events.append(_event("X", telemetry.names[prefix], pid, at - began, **place, **more))
    for device in telemetry.devices:
        host, _, label = device.name.rpartition(":")
        pid = pids.setdefault(host, len(pids) + 1)
        for at, row in zip(telemetry.times, device.rows, strict=True):
            for (what, unit), value in zip(COUNTERS, row or (), strict=False):
                if value is not None:
                    name = f"{label} {what}"
                    events.append(_event("C", name, pid, at - began, args={unit: value}))
    events += [_named("process_name", pid, 0, host) for host, pid in pids.items()]
    return msgspec.json.encode({"traceEvents": events, "displayTimeUnit": "ms"})


def _event(kind: str, name: str, pid: int, at_s: float, **more: Any) -> dict[str, Any]:
    return {"ph": kind, "name": name, "pid": pid, "ts": round(at_s * US), **more}


def _named(what: str, pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": {"name": name}}
