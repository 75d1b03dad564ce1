"""A run's record and telemetry → the cluster as it was at each moment of the run, as a snapshot.

The screen plays them back. Tasks are those whose spans were recorded: of very many a part. What was
not recorded is missing: the other hosts and GPUs, CPUs, claims. States of hosts and workers are
those that the run's log has.
"""

import re
import time
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from operator import attrgetter, itemgetter

from gputui.errors import UsageError
from gputui.model.readings import DeviceReading
from gputui.model.snapshot import (
    ClusterState,
    HostState,
    HostStatus,
    RunState,
    RunStatus,
    SchedulerState,
    SchedulerStatus,
    Snapshot,
    TaskGroupStatus,
    TaskSpan,
    WorkerState,
    WorkerStatus,
)
from gputui.protocol.shared import LogLines
from gputui.runs.records import RunRecord, find, status_of, telemetry_of
from gputui.runs.telemetry import MIB, DeviceTelemetry, Telemetry

AFTER = {
    "registered": WorkerState.IDLE,
    "crashed": WorkerState.CRASHED,
    "crash loop": WorkerState.CRASH_LOOP,
    "given up": WorkerState.CRASH_LOOP,
    "lost": WorkerState.CRASHED,
}
"""What happened to a worker → its state from then on."""
DEATHS = ("crashed", "crash loop")
RETIRED = "retired"
"""The worker is gone, until it registers again."""
PRINTED = "|"
WHAT = "|".join(map(re.escape, (PRINTED, RETIRED, *AFTER, *HostState)))
NOTED = re.compile(rf"^(\d\d):(\d\d):(\d\d\.\d\d\d)  (\S+) ({WHAT})(?: (.*)|$)", re.M)
"""A line of a run's log that a worker printed, or of what happened to a worker or host."""
Noted = tuple[float, str, str, str]
"""When, to whom, what (`PRINTED`, `RETIRED`, a key of `AFTER`, a state of a host), and the text."""
Happened = tuple[float, str, str]
"""When it happened to a host or worker, what, and the text."""


class RecordedRun:
    """A run that was recorded, with the time from its first reading to its last."""

    def __init__(
        self,
        run: RunStatus,
        workers: Sequence[str],
        telemetry: Telemetry,
        log: Iterable[Noted] = (),
    ) -> None:
        """Initialize; raises UsageError where nothing was read during the run."""
        if not telemetry.times:
            raise UsageError(f"{run.id}: it ended before its GPUs were read")
        self.run = run
        noted = sorted(log, key=itemgetter(0))
        self._log = [
            LogLines(worker, (text,), at)
            for at, worker, what, text in noted
            if what == PRINTED and ":" in worker
        ]
        self._events = [each for each in noted if each[2] != PRINTED]
        self.step_s = telemetry.step_s
        places = sorted(range(len(telemetry.times)), key=telemetry.times.__getitem__)
        self._times = [telemetry.times[place] for place in places]
        self.began_at = self._times[0]
        """When it was first read."""
        self.seconds = int(self._times[-1] - self.began_at)
        """How long it was read."""
        self._devices = [
            replace(each, rows=[each.rows[place] for place in places]) for each in telemetry.devices
        ]
        names = telemetry.names
        spans = [
            TaskSpan(names[worker], names[prefix], began_at, duration_s, erred)
            for worker, prefix, began_at, duration_s, erred in telemetry.spans
        ]
        self._spans = sorted(spans, key=_end)
        self._ends = list(map(_end, self._spans))
        self._longest_s = max((span.duration_s for span in spans), default=0.0)
        self._whole = telemetry.one_span_of == 1
        """Whether a worker without a span did nothing."""
        self._groups = dict[str, tuple[list[float], list[float], list[float]]]()
        """When the tasks of each prefix began, ended, and failed."""
        for span in self._spans:
            began, ended, failed = self._groups.setdefault(span.prefix, ([], [], []))
            began.append(span.started_at)
            (failed if span.erred else ended).append(_end(span))
        for began, *_ in self._groups.values():
            began.sort()
        known = dict.fromkeys((*workers, *(span.worker for span in spans)))
        self._workers = [name for name in known if ":" in name]
        self._uuids = {device.name: device.uuid for device in self._devices}

    def snapshot(self, second: int) -> Snapshot:
        """Return the cluster after so many seconds."""
        at = self.began_at + second
        groups = tuple(self._group(prefix, at) for prefix in self._groups)
        events = self._events[: bisect_right(self._events, at, key=itemgetter(0))]
        then = {name: (since, what, text) for since, name, what, text in events}
        deaths = Counter(name for _, name, what, _ in events if what in DEATHS)
        workers = tuple(self._working(at, then, deaths))
        first, last = (bisect_right(self._ends, each) for each in (at - 1, at))
        return Snapshot(
            sequence=second,
            taken_at=at,
            name=self.run.id,
            state=ClusterState.RUNNING if self._workers else ClusterState.WATCHING,
            started_at=self.run.started_at,
            scheduler=SchedulerStatus(
                SchedulerState.RUNNING if self._workers else SchedulerState.NONE,
                tasks=sum(group.total for group in groups),
            ),
            hosts=tuple(self._hosts(at, then)),
            workers=workers,
            groups=groups,
            runs=(self._run(at, groups),),
            spans=tuple(self._spans[first:last]),
        )

    def printed(self, after_s: float, until_s: float) -> Sequence[LogLines]:
        """Return the lines that workers printed after so many seconds, until so many."""
        first, last = (
            bisect_right(self._log, self.began_at + second, key=attrgetter("at"))
            for second in (after_s, until_s)
        )
        return self._log[first:last]

    def _hosts(self, at: float, then: Mapping[str, Happened]) -> Iterator[HostStatus]:
        names = (*self._uuids, *self._workers)
        found: dict[str, list[DeviceReading]] = {name.rpartition(":")[0]: [] for name in names}
        place = bisect_right(self._times, at) - 1
        for device in self._devices:
            found[device.name.rpartition(":")[0]].append(_reading(device, place))
        for name, devices in found.items():
            since, what, text = then.get(name, (self.began_at, "", ""))
            state = next((each for each in HostState if each == what), HostState.READY)
            reason = "" if state is HostState.READY else text
            yield HostStatus(name, state, since, reason, devices=tuple(devices))

    def _working(
        self, at: float, then: Mapping[str, Happened], deaths: Mapping[str, int]
    ) -> Iterator[WorkerStatus]:
        running = defaultdict[str, list[TaskSpan]](list)
        ending = bisect_right(self._ends, at), bisect_right(self._ends, at + self._longest_s)
        for span in self._spans[slice(*ending)]:
            if span.started_at <= at:
                running[span.worker].append(span)
        for name in self._workers:
            tasks = running[name]
            _, what, text = then.get(name, (0.0, "", ""))
            if what == RETIRED and not tasks:
                continue
            state = WorkerState.BUSY if tasks else AFTER.get(what, WorkerState.IDLE)
            uuid = self._uuids.get(name) or self._uuids.get(name.rpartition(".")[0])
            yield WorkerStatus(
                name,
                name.rpartition(":")[0],
                state,
                device_uuid=uuid,
                seen_device_uuid=uuid,
                reason="" if state.up else text,
                restarts=deaths[name],
                executing=len(tasks) if tasks or self._whole else None,
                current_task=tasks[0].prefix if tasks else None,
                task_since=tasks[0].started_at if tasks else None,
            )

    def _group(self, prefix: str, at: float) -> TaskGroupStatus:
        """Return the tasks of a prefix; those that had not begun wait."""
        began, *done = self._groups[prefix]
        begun = bisect_right(began, at)
        ended, failed = (bisect_right(each, at) for each in done)
        running = begun - ended - failed
        return TaskGroupStatus(
            prefix,
            prefix,
            waiting=len(began) - begun,
            processing=running,
            executing=running,
            memory=ended,
            erred=failed,
        )

    def _run(self, at: float, groups: Sequence[TaskGroupStatus]) -> RunStatus:
        """Return the run as it was, with the stage that it was in."""
        run = self.run
        ends_s = accumulate(seconds for _, seconds in run.timings)
        stages = zip(run.timings, ends_s, strict=True)
        stage = next((name for (name, _), end_s in stages if at - run.started_at < end_s), "")
        return RunStatus(
            run.id,
            run.preset,
            run.parameters,
            RunState.RUNNING,
            run.started_at,
            done=sum(group.finished for group in groups),
            total=sum(group.total for group in groups),
            stage=stage,
            user=run.user,
            hosts=run.hosts,
            versions=run.versions,
        )


def _end(span: TaskSpan) -> float:
    return span.started_at + span.duration_s


def _reading(device: DeviceTelemetry, place: int) -> DeviceReading:
    busy, memory_mib, power_w = device.rows[place] or (None, None, None)
    return DeviceReading(
        device.uuid,
        device.name.rpartition(":")[2][len("gpu") :],  # or "mig"
        device.model,
        memory_total_bytes=device.memory_bytes,
        memory_used_bytes=None if memory_mib is None else memory_mib * MIB,
        utilization_percent=busy,
        power_w=power_w,
        power_limit_w=device.power_limit_w,
    )


def read_recorded_run(id_: str) -> RecordedRun:
    """Read a run's recording; raises UsageError where it cannot be read."""
    record = find(id_)
    return RecordedRun(status_of(record), record.workers, telemetry_of(record), _log_of(record))


DAY_S = 86_400


def _log_of(record: RunRecord) -> Iterator[Noted]:
    """Yield what was noted during a run; the log has the time of day only."""
    then = time.localtime(record.started_at)
    midnight = int(record.started_at) - (60 * then.tm_hour + then.tm_min) * 60 - then.tm_sec
    at = record.started_at
    text = record.log.read_text("utf-8", "replace") if record.log.exists() else ""
    for hour, minute, second, *noted in NOTED.findall(text):
        before, at = at, midnight + (60 * int(hour) + int(minute)) * 60 + float(second)
        if at < before - DAY_S / 2:
            midnight, at = midnight + DAY_S, at + DAY_S
        yield (at, *noted)
