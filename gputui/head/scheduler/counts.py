"""Count a scheduler's workers and tasks: O(workers + groups), and nothing for each task."""

import time
from collections import Counter
from itertools import chain, islice

from distributed.scheduler import TaskGroup, TaskState, WorkerState, heartbeat_interval

from gputui.head.scheduler.cluster_scheduler import Scheduler
from gputui.model.snapshot import TaskGroupStatus
from gputui.protocol.scheduler import Counts, WorkerCounts

MAX_GROUPS = 500
"""Those at work come first, then the newest."""
MAX_UNRUNNABLE = 2_000
"""Tasks without a worker whose restrictions are examined."""
SILENT_AFTER_S = 6.0
SILENT_AFTER_HEARTBEATS = 3
"""Workers of large clusters send few heartbeats: 200 in a second, all workers together."""


def count(scheduler: Scheduler, listening_since: float = 0.0) -> Counts:
    """Return the counts now, with the tasks sampled since the last call.

    `listening_since` is when the scheduler's loop was last held up: what it did not read then
    is no worker's silence.
    """
    now, states = time.time(), scheduler.workers.values()
    running = {state.address: _running(state) for state in states}
    bound_s = max(SILENT_AFTER_S, SILENT_AFTER_HEARTBEATS * heartbeat_interval(len(states)))
    return Counts(
        at=now,
        workers=tuple(
            _worker(
                state,
                running[state.address],
                silence_s(now - max(state.last_seen, listening_since), bound_s),
            )
            for state in states
        ),
        groups=_groups(scheduler, Counter(task.group for task in chain(*running.values()))),
        tasks=len(scheduler.tasks),
        queued=len(scheduler.queued),
        clients=len(scheduler.clients) - ("fire-and-forget" in scheduler.clients),
        adaptive_target=scheduler.adaptive_target(scheduler.target_duration_s),
        spans=scheduler.take_spans(),
    )


def silence_s(quiet_s: float, bound_s: float) -> float:
    """Return for how long a worker has been silent; less than the bound is no silence.

    >>> silence_s(5.0, 6.0), silence_s(7.0, 6.0)
    (0.0, 7.0)
    """
    return quiet_s if quiet_s >= bound_s else 0.0


def _running(state: WorkerState) -> list[TaskState]:
    """Return the tasks that a worker runs: those that it reported, then the first it was given."""
    reported = [task for task in state.executing if task in state.processing]
    others = (task for task in state.processing if task not in state.executing)
    return list(islice(chain(reported, others), state.nthreads))


def _worker(state: WorkerState, running: list[TaskState], silent_s: float) -> WorkerCounts:
    metrics = state.metrics
    device = metrics.get("gputui", {})
    first = running[0] if running else None
    ran_s = state.executing.get(first) if first is not None else None
    return WorkerCounts(
        name=str(state.name),
        address=state.address,
        status=state.status.name,
        nthreads=state.nthreads,
        executing=len(running),
        ready=len(state.processing) - len(running),
        in_memory=len(state.has_what),
        managed_bytes=state.nbytes,
        spilled_bytes=metrics.get("spilled_bytes", {}).get("disk", 0),
        memory_limit_bytes=state.memory_limit,
        device_managed_bytes=device.get("device_managed_bytes"),
        device_uuid=device.get("device_uuid"),
        current_task=first.prefix.name if first is not None else None,
        task_since=None if ran_s is None else round(state.last_seen - ran_s, 1),
        silent_s=silent_s,
    )


def _groups(scheduler: Scheduler, executing: Counter[TaskGroup]) -> tuple[TaskGroupStatus, ...]:
    groups = list(scheduler.task_groups.values())
    if len(groups) > MAX_GROUPS:
        newest_first = reversed(groups)
        groups = sorted(newest_first, key=lambda group: group.done)[:MAX_GROUPS]
    needs = _needs(scheduler)
    return tuple(_group(group, executing[group], needs.get(group, ())) for group in groups)


def _needs(scheduler: Scheduler) -> dict[TaskGroup, tuple[str, ...]]:
    """Return the restrictions of tasks that no worker may run, by group."""
    needs: dict[TaskGroup, tuple[str, ...]] = {}
    for task in islice(scheduler.unrunnable, MAX_UNRUNNABLE):
        if task.group not in needs:
            asked = (task.resource_restrictions, task.worker_restrictions, task.host_restrictions)
            needs[task.group] = tuple(sorted(name for each in asked for name in each or ()))
    return needs


def _group(group: TaskGroup, executing: int, needs: tuple[str, ...]) -> TaskGroupStatus:
    states, seconds = group.states, group.all_durations
    return TaskGroupStatus(
        name=str(group.name),
        prefix=group.prefix.name,
        waiting=states["waiting"],
        queued=states["queued"],
        no_worker=states["no-worker"],
        processing=states["processing"],
        executing=executing,
        needs=needs,
        memory=states["memory"],
        released=states["released"],
        erred=states["erred"],
        forgotten=states["forgotten"],
        compute_s=seconds["compute"],
        transfer_s=seconds["transfer"],
        nbytes=group.nbytes_total,
    )
