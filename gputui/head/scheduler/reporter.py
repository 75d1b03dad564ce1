"""Count the scheduler's workers and tasks for the head, and carry out the head's requests.

Counting is O(workers + groups), and nothing for each task.

Runs in the scheduler's own loop, over its stdin and stdout: while the loop is busy nothing is
reported, and that is how the head knows.
"""

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import Coroutine, Mapping
from itertools import chain, islice
from typing import Any

from distributed.scheduler import TaskGroup, TaskState, WorkerState, heartbeat_interval

from gputui.head.scheduler.scheduler import Scheduler
from gputui.model.snapshot import TaskGroupStatus
from gputui.model.usage import Way
from gputui.process.background import Background
from gputui.protocol.scheduler import (
    Aim,
    Counts,
    FromScheduler,
    Remove,
    Retire,
    Retired,
    StopScheduler,
    ToScheduler,
    WorkerCounts,
)
from gputui.protocol.typed_codec import TypedChannel

logger = logging.getLogger(__name__)

HeadChannel = TypedChannel[FromScheduler, ToScheduler]

HELD_UP_S = 1.0
"""A loop that was busy for longer has read no heartbeat in that time."""


class Reporter:
    """The scheduler's end of the channel to its head."""

    def __init__(self, scheduler: Scheduler, channel: HeadChannel) -> None:
        self._scheduler = scheduler
        self._channel = channel
        scheduler.tell_head = channel.send
        self._tasks = Background(lambda name, error: None)  # it is logged

    async def report(self, interval_s: float) -> None:
        """Send the counts until cancelled."""
        listening_since = 0.0
        while True:
            try:
                self._channel.send(count(self._scheduler, listening_since))
            except Exception:  # a mistake in counting is never the scheduler's end
                logger.exception("the scheduler could not be counted")
            due = time.monotonic() + interval_s
            await asyncio.sleep(interval_s)
            if time.monotonic() - due > HELD_UP_S:
                listening_since = time.time()

    async def obey(self) -> None:
        """Carry out the head's orders until it says stop or is gone; raises ProtocolError."""
        try:
            await self._channel.serve(self._take, self._tasks)
        finally:
            await self._tasks.close()

    def _take(self, message: ToScheduler) -> Coroutine[Any, Any, FromScheduler] | None:
        match message:
            case Retire():
                return self._retire(message)
            case Remove():
                self._tasks.start(self._remove(message), "removing workers")
            case Aim(target_duration_s):
                self._scheduler.target_duration_s = target_duration_s
            case StopScheduler():
                self._channel.abort()
        return None

    async def _retire(self, order: Retire) -> Retired:
        """Move workers' results elsewhere; answered even if Dask fails."""
        names = {state.address: str(state.name) for state in self._scheduler.workers.values()}
        error = ""
        try:
            await self._scheduler.retire_workers(names=list(order.names), close_workers=False)
        except Exception as problem:
            error = f"{type(problem).__name__}: {problem}"
        there = {names.get(address) for address in self._scheduler.workers}
        gone = tuple(name for name in order.names if name not in there)
        return Retired(order.request, gone, error)

    async def _remove(self, order: Remove) -> None:
        """Forget workers; one that Dask fails to forget is logged."""
        names = set(order.names)
        gone = [state.address for state in self._scheduler.workers.values() if state.name in names]
        for address in gone:
            try:
                await self._scheduler.remove_worker(address, stimulus_id=f"gputui: {order.reason}")
            except Exception:
                logger.exception("the scheduler could not forget %s", address)


async def close_quickly(scheduler: Scheduler, bound_s: float = 1.0) -> None:
    """Close the scheduler; anything left ends with the process."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(bound_s):
            await scheduler.close(reason="the cluster stops")


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
                now - max(state.last_seen, listening_since),
                bound_s,
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


def _running(state: WorkerState) -> list[TaskState]:
    """Return the tasks that a worker runs: those that it reported, then the first it was given."""
    reported = [task for task in state.executing if task in state.processing]
    others = (task for task in state.processing if task not in state.executing)
    return list(islice(chain(reported, others), state.nthreads))


def _worker(
    state: WorkerState, running: list[TaskState], quiet_s: float, bound_s: float
) -> WorkerCounts:
    """Count a worker; one that has been quiet for less than the bound is not silent."""
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
        silent_s=quiet_s if quiet_s >= bound_s else 0.0,
        fetching=_fetching(metrics.get("task_counts", {})),
        moved=tuple((Way(way), size) for way, size in device.get("moved", {}).items()),
    )


def _fetching(counts: Mapping[str, int]) -> bool:
    """Return whether a worker with these tasks, by state, waits for results of others."""
    return not counts.get("executing") and bool(counts.get("flight") or counts.get("fetch"))


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
