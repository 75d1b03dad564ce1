"""Why a cluster is stuck: a snapshot and what the agents found → verdicts. Pure.

A verdict is one sentence for a cause, with its evidence; the likeliest comes first. What runs as it
should is accused of nothing: then the only verdict says what is going on.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from gputui.model.alarms import RAISED_AFTER_S, AlarmKind
from gputui.model.examination import (
    ExaminedHost,
    ExaminedScheduler,
    ExaminedWorker,
    ThreadStack,
)
from gputui.model.frozen import frozen
from gputui.model.plain_text import many
from gputui.model.readings import IDLE_PERCENT, recent_xid
from gputui.model.snapshot import (
    AWAY,
    ClusterState,
    Event,
    HostState,
    SchedulerState,
    Snapshot,
    WorkerState,
    WorkerStatus,
)

WAITS = re.compile(
    r"(selectors\.py:\d+ select|threading\.py:\d+ \S+|queue\.py:\d+ get|thread\.py:\d+ _worker"
    r"|threadpoolexecutor\.py:\d+ _worker|profile\.py:\d+ _watch)$"
)
"""The innermost frame of a thread that waits for work."""
LOOP = re.compile(r"base_events\.py:\d+ _run_once$")
IDLE_LOOP = re.compile(r"selectors\.py:\d+ select$")
COORDINATION = re.compile(
    r"distributed/(lock|multi_lock|semaphore|queues|event|variable|pubsub)\.py:\d+ \S+ ?(.*)"
)
OF_DASK = ("distributed/", "python3", "asyncio/", "tornado/", "concurrent/")
"""The beginnings of frames that are not a user's own."""
OWN_TASKS = re.compile(r"distributed/client\.py:\d+ (result|gather|get|compute)$")
GRAPH = re.compile(r" (_?update_graph\w*|_create_taskstate_from_graph|_materialize_graph)$")
WAITED_S = 2.0
"""A task that waits for a lock for less is no cause."""
STALLED_PERCENT = 10.0
RESTED_S = 10.0
"""A task that waits in the kernel for less is no cause."""
FILES_SHARE = 0.95
SHOWN_FRAMES = 8
ANSWER_S = 2.9
"""How long a head may take until it counts as silent."""


@frozen
class Verdict:
    """A cause, or the state of a cluster without one."""

    cause: str
    """A word for programs: stopped, gil, lock …"""
    text: str
    evidence: tuple[str, ...] = ()


@frozen
class Evidence:
    """All that is known of a cluster."""

    snapshot: Snapshot
    hosts: tuple[ExaminedHost, ...]
    scheduler: ExaminedScheduler
    events: tuple[Event, ...] = ()
    """Those that are known, for what holds since before the snapshot."""

    @property
    def hanging(self) -> dict[str, float]:
        """GPU → for how many seconds it has looked busy at idle power, by that alarm's events."""
        found: dict[str, float] = {}
        for event in (each for each in self.events if each.alarm == AlarmKind.HANGS):
            if event.kind == "alarm":
                since = event.at - RAISED_AFTER_S[AlarmKind.HANGS]
                found[event.subject] = self.snapshot.taken_at - since
            else:
                found.pop(event.subject, None)
        return found

    @property
    def workers(self) -> Iterator[tuple[ExaminedWorker, WorkerStatus]]:
        """Every worker that was examined, with its status."""
        known = {worker.name: worker for worker in self.snapshot.workers}
        for host in self.hosts:
            for worker in host.workers:
                if worker.name in known:
                    yield worker, known[worker.name]


def verdicts(evidence: Evidence) -> tuple[Verdict, ...]:
    """Return the causes, the likeliest first; without any, the state of the work."""
    found = [verdict for look in LOOKS for verdict in look(evidence)]
    return tuple(found) or (_nothing(evidence),)


def as_lines(found: Iterable[Verdict]) -> list[str]:
    """Return verdicts as text: a sentence each, with the evidence indented under it."""
    return [line for each in found for line in (each.text, *(f"    {it}" for it in each.evidence))]


def _scheduler(evidence: Evidence) -> Iterator[Verdict]:
    status, process = evidence.snapshot.scheduler, evidence.scheduler
    shown = process.frames[:SHOWN_FRAMES]
    if process.state == "T":
        text = f"the scheduler's process is stopped by a signal: kill -CONT {process.pid}"
        yield Verdict("scheduler-stopped", text, (f"state T, silent for {status.busy_s:.0f} s",))
    elif process.state == "D":
        yield Verdict("scheduler-disk", "the scheduler waits for a disk or a device", shown)
    elif status.state is SchedulerState.LOST:
        yield Verdict("scheduler-lost", f"there is no scheduler: {status.reason}")
    elif status.busy_s:
        graph = any(GRAPH.search(frame) for frame in process.frames)
        what = "with a graph that a client sent" if graph else "and answers nothing"
        text = f"the scheduler has been busy for {status.busy_s:.0f} s {what}"
        cpu = f"{status.cpu_percent or 0:.0f} % of a CPU, {status.tasks:,} tasks before that"
        yield Verdict("scheduler-busy", text, (cpu, *shown))


def _gpus(evidence: Evidence) -> Iterator[Verdict]:
    hanging = evidence.hanging
    for host in evidence.snapshot.hosts:
        for device in host.devices:
            name = f"{host.name}:{device.short_name}"
            figures = f"{device.utilization_percent or 0:.0f} % at {device.power_w or 0:.0f} W"
            figures += f" of {device.power_limit_w or 0:.0f} W"
            if xid := recent_xid(device, evidence.snapshot.taken_at):
                yield Verdict("xid", f"{name} had Xid {xid}")
            if device.lost:
                destroyed = "was destroyed, or its GPU " if device.is_mig else ""
                yield Verdict("gpu-lost", f"{name} {destroyed}fell off the bus: reboot its host")
            elif device.stale:
                yield Verdict("driver", f"the driver does not answer on {name}")
            elif name in hanging:
                text = f"{name} runs one kernel for {hanging[name]:.0f} s at idle power"
                yield Verdict("gpu-hangs", text, (figures,))


def _processes(evidence: Evidence) -> Iterator[Verdict]:
    for worker, status in evidence.workers:
        task = f"; it runs {status.current_task}" if status.current_task else ""
        if worker.state == "T":
            text = f"worker {worker.name} is stopped by a signal: kill -CONT {worker.pid}{task}"
            yield Verdict("worker-stopped", text, (f"pid {worker.pid}, state T",))
        elif worker.state == "t":
            text = f"worker {worker.name} is held by a debugger: {worker.problem}{task}"
            yield Verdict("worker-traced", text, (f"pid {worker.pid}, state t",))
        elif worker.state == "D" and not worker.answered:
            text = f"worker {worker.name} waits in the kernel for a disk or a device{task}"
            shown = (f"state D in {worker.wait_channel or 'an unknown function'}",)
            yield Verdict("worker-disk", text, shown)
        elif worker.threads and not worker.answered:
            yield from _held(worker, status, evidence.snapshot.taken_at)
        elif status.silent_for_s and (loop := _loop(worker)) and not _in(loop, IDLE_LOOP):
            yield _held_up(worker, loop)
        files, most = status.open_files or 0, worker.most_files
        if most and files >= FILES_SHARE * most:
            text = f"worker {worker.name} has {files:,} of {most:,} file descriptors open"
            yield Verdict("files", f"{text}: close files, or raise ulimit -n on its host")


def _held(worker: ExaminedWorker, status: WorkerStatus, now: float) -> Iterator[Verdict]:
    """Name the frame that keeps a worker's Python from answering."""
    loop = _loop(worker)
    if loop and not _in(loop, WAITS) and not any(each.has_gil for each in worker.threads):
        yield _held_up(worker, loop)
        return
    at_work = [each for each in worker.threads if each.frames and not _in(each, WAITS)]
    holder = next((each for each in worker.threads if each.has_gil), next(iter(at_work), None))
    if holder is not None and holder.frames:
        since = f" for {now - status.task_since:.0f} s" if status.task_since else ""
        text = f"worker {worker.name} holds the GIL in {holder.frames[0]}{since}"
        task = (f"task {status.current_task}",) if status.current_task else ()
        yield Verdict("gil", text, (*task, *holder.frames[:SHOWN_FRAMES]))


def _held_up(worker: ExaminedWorker, loop: ThreadStack) -> Verdict:
    text = f"worker {worker.name}: {loop.frames[0]} holds up its event loop"
    return Verdict("event-loop", text, loop.frames[:SHOWN_FRAMES])


def _loop(worker: ExaminedWorker) -> ThreadStack | None:
    return next((each for each in worker.threads if any(map(LOOP.search, each.frames))), None)


def _in(thread: ThreadStack, where: re.Pattern[str]) -> bool:
    return bool(thread.frames and where.search(thread.frames[0]))


def _silent(evidence: Evidence) -> Iterator[Verdict]:
    """Say whose results and tasks are out of reach."""
    snapshot = evidence.snapshot
    away = {host.name: host for host in snapshot.hosts if host.state in AWAY}
    stopped = {worker.name for worker, _ in evidence.workers if worker.state == "T"}
    waits: Counter[str] = Counter()
    for worker, _ in evidence.workers:
        for fetch in worker.transfers.fetching:
            waits[fetch.address] += max(fetch.results, worker.transfers.waiting)
    for status in snapshot.workers:
        silent = status.state is WorkerState.SILENT or status.name in stopped
        how = "stopped" if status.name in stopped or status.stopped else "silent"
        shown = (f"silent for {status.silent_for_s:.0f} s",) if status.silent_for_s else ()
        if host := away.get(status.host):
            shown = (f"host {host.name} is {host.state}: {host.reason}",)
        if silent and (count := waits[status.address or ""]):
            text = f"{_tasks(count)} for a result of {status.name}, which is {how}"
            yield Verdict("result-away", text, shown)
        elif silent and status.tasks and how == "silent":
            text = f"{status.name} has {many(status.tasks, 'task')} and does not answer"
            yield Verdict("worker-silent", text, shown)
        elif not silent:
            yield from _unreached(evidence, status)
    for host in snapshot.hosts:
        if host.state in AWAY:
            yield Verdict("host-silent", f"host {host.name} is {host.state}: {host.reason}")


def _unreached(evidence: Evidence, status: WorkerStatus) -> Iterator[Verdict]:
    """Say which hosts do not reach a worker whose results they need."""
    for host in evidence.hosts:
        unreached = {f"tls://{each}" for each in host.unreached}
        waiting = {
            worker.name: max(fetch.results, worker.transfers.waiting)
            for worker in host.workers
            for fetch in worker.transfers.fetching
            if fetch.address == status.address and fetch.address in unreached
        }
        if waiting:
            what = f"{_tasks(sum(waiting.values()))} for a result of {status.name}"
            shown = tuple(f"{name}: {status.address} does not answer" for name in waiting)
            yield Verdict("unreached", f"{what}, which {host.host} does not reach", shown)


def _tasks(count: int) -> str:
    return f"{many(count, 'task')} wait{'s' * (count == 1)}"


def _places(evidence: Evidence) -> Iterator[Verdict]:
    """Say why tasks get no worker."""
    snapshot = evidence.snapshot
    up = [worker for worker in snapshot.workers if worker.state.up]
    wanted = snapshot.state is not ClusterState.WATCHING
    if not up and wanted and snapshot.workers + snapshot.hosts:
        failed = [host for host in snapshot.hosts if host.state is HostState.FAILED]
        shown = tuple(f"{host.name}: {host.reason}" for host in failed)
        shown += tuple(line.strip() for line in snapshot.lacking.splitlines())
        reasons = tuple(f"{w.name}: {w.state}: {w.reason}" for w in snapshot.workers if w.reason)
        yield Verdict("no-worker", "no worker is up", (*shown, *reasons)[:SHOWN_FRAMES])
    elif up and all(worker.state is WorkerState.PAUSED for worker in up):
        used = (
            f"{w.name}: {(w.rss_bytes or 0) / 2**20:,.0f} of "
            f"{(w.memory_limit_bytes or 0) / 2**20:,.0f} MiB"
            for w in up[:SHOWN_FRAMES]
        )
        yield Verdict("paused", "all workers are paused: memory", tuple(used))
    for group in snapshot.groups if up else ():
        if group.no_worker:
            needs = ", ".join(group.needs) or "more than there is"
            text = f"{_tasks(group.no_worker)} for what no worker offers: {needs}"
            yield Verdict("no-place", text, (f"tasks {group.prefix}",))


def _coordination(evidence: Evidence) -> Iterator[Verdict]:
    """Say which tasks wait for each other."""
    waiting: dict[str, list[str]] = {}
    for worker, thread in _tasks_since(evidence, WAITED_S):
        outermost_first = map(COORDINATION.search, reversed(thread.frames))
        if found := next(filter(None, outermost_first), None):
            name = f", waits for {found[2]}" if found[2] else ""
            where = f"{worker.name}: {thread.task} at {_own(thread)}{name}"
            waiting.setdefault(found[1], []).append(where)
    for what, shown in waiting.items():
        name = {"queues": "queue", "semaphore": "lock or semaphore"}.get(what, what)
        text = f"{_tasks(len(shown))} for a Dask {name}"
        yield Verdict("lock", text, tuple(shown[:SHOWN_FRAMES]))


def _own_tasks(evidence: Evidence) -> Iterator[Verdict]:
    """Say that all threads wait for tasks that none of them is free to run."""
    waiting = [
        f"{worker.name}: {thread.task} at {_own(thread)}"
        for worker, thread in _tasks_since(evidence, WAITED_S)
        if any(map(OWN_TASKS.search, thread.frames))
    ]
    if waiting and len(waiting) >= sum(w.nthreads for w in evidence.snapshot.workers if w.state.up):
        whose = "that it submitted" if len(waiting) == 1 else "that they submitted"
        text = f"{_tasks(len(waiting))} for tasks {whose}, and no thread is free for those"
        yield Verdict("own-tasks", f"{text}: use worker_client() or secede()", tuple(waiting))


def _waits(evidence: Evidence) -> Iterator[Verdict]:
    """Say where tasks wait in the kernel while nothing else goes on in their workers."""
    idle = {
        device.uuid
        for host in evidence.snapshot.hosts
        for device in host.devices
        if device.utilization_percent is not None and device.utilization_percent < IDLE_PERCENT
    }
    uuids = {status.name: status.device_uuid for status in evidence.snapshot.workers}
    waiting: dict[str, list[str]] = {}
    for worker, thread in _tasks_since(evidence, RESTED_S):
        frames = (COORDINATION.search(each) or OWN_TASKS.search(each) for each in thread.frames)
        uuid = uuids[worker.name]
        if thread.waits and (uuid is None or uuid in idle) and not any(frames):
            where = f"{_own(thread)}: {thread.waits}"
            waiting.setdefault(where, []).append(f"{worker.name}: {thread.task}")
    for where, shown in waiting.items():
        text = f"{_tasks(len(shown))} at {where}"
        yield Verdict("task-waits", text, tuple(shown[:SHOWN_FRAMES]))


def _tasks_since(
    evidence: Evidence, at_least_s: float
) -> Iterator[tuple[ExaminedWorker, ThreadStack]]:
    """Yield the threads with tasks, of workers that have run one for so long."""
    for worker, status in evidence.workers:
        began = status.task_since
        if began is None or evidence.snapshot.taken_at - began >= at_least_s:
            yield from ((worker, thread) for thread in worker.threads if thread.task)


def _own(thread: ThreadStack) -> str:
    """Return the innermost frame of a task that is the user's own code."""
    return next((each for each in thread.frames if not each.startswith(OF_DASK)), "an unknown line")


def _hosts(evidence: Evidence) -> Iterator[Verdict]:
    for host in evidence.hosts:
        if host.tasks_full:
            text = f"host {host.host} runs {host.tasks_full} processes and threads that its control"
            yield Verdict("tasks", f"{text} group allows: no thread can start")
        if host.full_disks:
            yield Verdict("disk-full", f"host {host.host}: disk full", host.full_disks)
        if (stall := host.memory_stall_percent or 0) > STALLED_PERCENT:
            text = f"host {host.host} is short of memory: all stood still for {stall:.0f} % of 10 s"
            yield Verdict("memory-pressure", text)


LOOKS: tuple[Callable[[Evidence], Iterable[Verdict]], ...] = (
    _scheduler,
    _gpus,
    _processes,
    _silent,
    _places,
    _coordination,
    _own_tasks,
    _hosts,
    _waits,
)
"""In the order in which they explain most."""


def _nothing(evidence: Evidence) -> Verdict:
    """Describe the state of the work."""
    snapshot = evidence.snapshot
    if snapshot.state is ClusterState.WATCHING:
        runs = "; ".join(
            f"{each.id}: {each.stage or each.state}"
            for each in snapshot.runs
            if not each.state.ended
        )
        idle = "nothing: no worker is wanted here, the hosts are only watched"
        return Verdict("idle", runs or idle)
    groups = snapshot.groups
    running = sum(group.executing for group in groups)
    to_do = sum(group.waiting + group.queued + group.processing for group in groups)
    if not to_do:
        who = "your client" if snapshot.scheduler.clients else "a client; none is connected"
        kept = sum(group.memory for group in groups)
        text = f"nothing: there is no task to do, and it waits for {who}"
        return Verdict("idle", text, (f"{many(kept, 'result')} kept for it",) if kept else ())
    at = {worker.name: _own(each) for worker, each in _tasks_since(evidence, 0.0)}
    busy = [worker for worker in snapshot.workers if worker.task_since and worker.current_task]
    oldest = sorted(busy, key=lambda worker: worker.task_since or 0.0)[:3]
    shown = tuple(
        f"{each.name}: {each.current_task} for {snapshot.taken_at - (each.task_since or 0):.0f} s"
        f"{f', at {at[each.name]}' if each.name in at else ''}"
        for each in oldest
    )
    workers = many(snapshot.workers_up, "worker")
    text = f"nothing is stuck: {running} of {to_do} tasks run on {workers}"
    return Verdict("working", text, shown)
