"""A run's record and telemetry → a Chrome trace, which Perfetto opens: https://ui.perfetto.dev.

Each host is a process: its workers' tasks are threads, as many to a worker as ran at a time, its
GPUs' readings counters. Moments are microseconds since the run began.
Source: "Trace Event Format", the JSON object format.
"""

from collections import defaultdict
from typing import Any

from gputui.runs.records import RunRecord
from gputui.runs.telemetry import Telemetry

COUNTERS = (("utilisation", "%"), ("memory", "MiB"), ("power", "W"))
"""The columns of a row of telemetry."""
US = 1e6


def chrome_trace(record: RunRecord, telemetry: Telemetry) -> bytes:
    """Return a trace as JSON, in UTF-8: Perfetto 52 shows escapes of other characters as such."""
    import msgspec  # hosts are without it, and tasks there may import gputui.runs

    began, names = record.started_at, telemetry.names
    events: list[dict[str, Any]] = []
    hosts = _Hosts(events)
    at_s = 0.0
    for stage, seconds in record.timings.items():
        events.append(_event("X", stage, 0, at_s, dur=round(seconds * US), tid=0))
        at_s += seconds
    lanes: dict[str, list[float]] = defaultdict(list)
    for worker, prefix, at, duration_s, erred in sorted(telemetry.spans, key=lambda s: s[2]):
        name = names[worker]
        lane = _free_lane(lanes[name], at, at + duration_s)
        pid, tid = hosts.thread(name, lane)
        event = _event("X", names[prefix], pid, at - began, dur=round(duration_s * US), tid=tid)
        events.append(event | ({"cname": "terrible", "args": {"erred": True}} if erred else {}))
    for device in telemetry.devices:
        host, _, label = device.name.rpartition(":")
        pid = hosts.process(host)
        for at, row in zip(telemetry.times, device.rows, strict=True):
            for (what, unit), value in zip(COUNTERS, row or (), strict=False):
                if value is not None:
                    events.append(
                        _event("C", f"{label} {what}", pid, at - began, args={unit: value})
                    )
    events.append(_named("process_name", 0, 0, f"{record.preset} {record.id}"))
    return msgspec.json.encode({"traceEvents": events, "displayTimeUnit": "ms"})


class _Hosts:
    """The numbers of processes and threads; each is named in an event when it is new."""

    def __init__(self, events: list[dict[str, Any]]) -> None:
        self._events = events
        self._pids: dict[str, int] = {}
        self._tids: dict[tuple[str, int], int] = {}

    def process(self, host: str) -> int:
        """Return a host's number."""
        if host not in self._pids:
            self._pids[host] = len(self._pids) + 1
            self._events.append(_named("process_name", self._pids[host], 0, host))
        return self._pids[host]

    def thread(self, worker: str, lane: int) -> tuple[int, int]:
        """Return the numbers of a worker's host, and of one of the tasks that it ran at a time."""
        host, _, label = worker.rpartition(":")
        pid, key = self.process(host), (worker, lane)
        if key not in self._tids:
            self._tids[key] = len(self._tids) + 1
            name = label if lane == 0 else f"{label} +{lane}"
            self._events.append(_named("thread_name", pid, self._tids[key], name))
        return pid, self._tids[key]


def _free_lane(ends: list[float], begins: float, ends_at: float) -> int:
    """Return the first lane whose last task has ended, and put this one there."""
    lane = next((n for n, end in enumerate(ends) if end <= begins), len(ends))
    ends[lane : lane + 1] = [ends_at]
    return lane


def _event(kind: str, name: str, pid: int, at_s: float, **more: Any) -> dict[str, Any]:
    return {"ph": kind, "name": name, "pid": pid, "ts": round(at_s * US), **more}


def _named(what: str, pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": {"name": name}}
