"""Dask's scheduler as a gputui cluster runs it: TLS, no HTTP server, and what it tells its head.

It counts its workers and tasks for the head in its own loop, O(workers + groups), and carries out
the head's orders. While the loop is busy nothing is reported, and that is how the head knows.

Its dashboard, where one is asked for, is for browsers on this machine, and pages that it served. A
page of another site that a browser has open can send requests to loopback, too (DNS rebinding,
cross-site WebSockets); its Host or Origin gives it away.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from heapq import nlargest
from itertools import chain, islice
from operator import attrgetter
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import dask
import distributed
from distributed.diagnostics.plugin import SchedulerPlugin
from distributed.protocol.serialize import ToPickle
from distributed.scheduler import TaskGroup, TaskState, WorkerState, heartbeat_interval
from distributed.utils import key_split
from tornado.httputil import HTTPServerRequest
from tornado.routing import AnyMatches, Matcher, Rule, RuleRouter
from tornado.web import Application, ErrorHandler

from gputui.engine import tls
from gputui.engine.overrides import overriding
from gputui.engine.wire import SentTask
from gputui.errors import UsageError
from gputui.fleet.addresses import LOOPBACK, is_loopback
from gputui.model.plain_text import cut
from gputui.model.snapshot import TaskGroupStatus, TaskSpan
from gputui.model.usage import PrefixUsage, Way
from gputui.process.background import Background
from gputui.protocol.scheduler import (
    ClosedWhenIdle,
    ConfigureScheduler,
    Counts,
    FromScheduler,
    Remove,
    Retire,
    Retired,
    RetiredByClient,
    StopScheduler,
    ToScheduler,
    WorkerCounts,
)
from gputui.protocol.typed_codec import TypedChannel

MAX_SPANS = 1_000
"""Between two reports; shared out evenly among the workers."""


SEND_EVERY_S = 0.0005
"""How long messages to a worker are gathered. Dask's 5 ms are what each task of a chain waits."""


@overriding(add_worker="self scheduler worker")
class SendSooner(SchedulerPlugin):  # type: ignore[misc]
    """Makes a scheduler send its decisions to workers at once, and remember their names."""

    name = "gputui-send-sooner"

    def add_worker(self, scheduler: distributed.Scheduler, worker: str) -> None:
        """Change how long messages to a new worker are gathered, and note its name."""
        scheduler.stream_comms[worker].interval = SEND_EVERY_S
        scheduler.names[worker] = str(scheduler.workers[worker].name)


@overriding(
    close="self timeout reason",
    start_http_server="self routes dashboard_address default_port ssl_options",
    retire_workers="self workers names close_workers remove stimulus_id kwargs",
    restart_workers="self workers client timeout wait_for_workers on_error stimulus_id",
    identity="self n_workers",
    register_nanny_plugin="self comm plugin name idempotent",
    valid_workers="self ts",
    _task_to_msg="self ts",
    handle_task_finished="self key worker stimulus_id msg",
    handle_task_erred="self key stimulus_id msg",
)
class Scheduler(distributed.Scheduler):  # type: ignore[misc]
    """A scheduler without an HTTP server, unless a dashboard was asked for.

    Dask reads a server's settings under the name of its class: `distributed.scheduler.…`.
    """

    def __init__(self, config: ConfigureScheduler) -> None:
        self.tell_head: Callable[[FromScheduler], None] = lambda message: None
        """Sends a message to the head."""
        self._serves_http = config.dashboard_port is not None
        self._spans: list[TaskSpan] = []
        self._spans_left: Counter[str] = Counter()
        self.names: dict[str, str] = {}
        """Address → name of every worker that there was."""
        routes = dask.config.get("distributed.scheduler.http.routes") if self._serves_http else []
        with dask.config.set({"distributed.scheduler.http.routes": routes}):
            super().__init__(
                host=config.host,
                port=config.port,
                protocol="tls",
                security=tls.security(
                    config.credentials.certificate_pem, config.credentials.key_pem
                ),
                dashboard=self._serves_http,
                dashboard_address=f"{LOOPBACK}:{config.dashboard_port or 0}",
                local_directory=config.scratch,
                needs_workdir=False,
            )
        self.add_plugin(SendSooner())
        Path(self.local_directory).chmod(0o700)

    def start_http_server(self, *args: Any, **kwargs: Any) -> None:
        """Serve HTTP only where a dashboard was asked for.

        distributed 2026.8 listens even with `dashboard=False`.
        """
        if self._serves_http:
            super().start_http_server(*args, **kwargs)
            self.http_server.request_callback = guarded(self.http_application)

    async def close(self, timeout: float | None = None, reason: str = "unknown") -> None:
        """Close it, and report to the head where Dask's idle timeout does so."""
        if reason == "idle-timeout-exceeded":  # as distributed 2026.8 names it
            self.tell_head(ClosedWhenIdle())
        await super().close(timeout, reason)

    async def retire_workers(
        self,
        workers: list[str] | None = None,
        *,
        close_workers: bool = False,
        **options: Any,
    ) -> dict[str, Any]:
        """Retire workers; the head is notified of those that a client closes.

        Their agents would start them again, as they do after `client.restart()`.
        """
        retired: dict[str, Any] = await super().retire_workers(
            workers, close_workers=False, **options
        )
        if close_workers and (gone := [r for r in retired.values() if "name" in r]):
            self.tell_head(RetiredByClient(tuple(str(each["name"]) for each in gone)))
        return retired

    async def restart_workers(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Close workers, which their agents start again, and wait for that where asked."""
        said = await super().restart_workers(*args, **kwargs)
        return {address: "OK" if how == "removed" else how for address, how in said.items()}

    def identity(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Return Dask's answer with what clients expect of every scheduler.

        They restart workers only where something starts them again, and ask for the port of the
        dashboard without asking whether there is one (distributed 2026.8, `Client.dashboard_link`).
        """
        found: dict[str, Any] = super().identity(*args, **kwargs)
        found["services"].setdefault("dashboard", 0)
        for worker in found["workers"].values():
            worker["nanny"] = worker["nanny"] or "gputui's agent"
        return found

    async def register_nanny_plugin(self, comm: Any, plugin: bytes, name: str, **_: Any) -> None:
        """Refuse it: no nanny would ever run it."""
        raise UsageError(
            f"nanny plugin {name}: workers have an agent here in place of a nanny. Set variables "
            "with dask.config.set({'distributed.nanny.environ': …}) before the cluster starts or "
            "env.X=… in the hosts file, send files with client.upload_file, run code with a "
            "WorkerPlugin"
        )

    def valid_workers(self, ts: Any) -> Any:
        """Drop a restriction to workers that are all gone; what the task needs of any still counts.

        distributed 2026.8 forgets with it the resources that a task with `allow_other_workers`
        needs, and where no other worker is there at that moment it leaves the task waiting for
        ever: a worker that comes back has another address.
        """
        wished = ts.worker_restrictions if ts.loose_restrictions else None
        if wished and not ts.host_restrictions and wished.isdisjoint(self.workers):
            ts.worker_restrictions, ts.loose_restrictions = None, False
        return super().valid_workers(ts)

    def _task_to_msg(self, ts: Any) -> dict[str, Any]:
        """Return Dask's message; where a worker cannot load the task, the task fails."""
        message: dict[str, Any] = super()._task_to_msg(ts)
        assert isinstance(message["run_spec"], ToPickle)
        message["run_spec"] = ToPickle(SentTask(ts.run_spec))
        return message

    def handle_task_finished(
        self, key: Any, worker: str, stimulus_id: str, *, startstops: Any = (), **message: Any
    ) -> None:
        """Take part of those tasks into the sample, then do as Dask does."""
        self._sample(key, worker, startstops)
        super().handle_task_finished(key, worker, stimulus_id, startstops=startstops, **message)

    def handle_task_erred(self, key: Any, stimulus_id: str, **message: Any) -> None:
        """Take part of those tasks into the sample, then do as Dask does."""
        self._sample(key, message.get("worker", ""), message.get("startstops"), erred=True)
        super().handle_task_erred(key, stimulus_id, **message)

    def take_spans(self) -> tuple[TaskSpan, ...]:
        """Return the tasks sampled since the last call, once."""
        spans, self._spans = tuple(self._spans), []
        each = max(1, MAX_SPANS // max(1, len(self.workers)))
        self._spans_left = Counter(dict.fromkeys(self.workers, each))
        return spans

    def _sample(self, key: Any, worker: str, startstops: Any, *, erred: bool = False) -> None:
        if not self._spans_left[worker] or len(self._spans) >= MAX_SPANS:
            return
        for action in startstops or ():
            if action["action"] == "compute" and (state := self.workers.get(worker)):
                start = action["start"]
                duration = max(0.0, action["stop"] - start)
                self._spans_left[worker] -= 1
                self._spans.append(
                    TaskSpan(str(state.name), key_split(key), start, duration, erred)
                )


def guarded(application: Any) -> RuleRouter:
    """Return an application that answers 403 to requests that other sites made."""
    refuse = Application([(r".*", ErrorHandler, {"status_code": 403})])
    return RuleRouter([Rule(_FromHere(), application), Rule(AnyMatches(), refuse)])


class _FromHere(Matcher):
    """Matches requests whose Host, and Origin where they have one, are this machine's loopback."""

    def match(self, request: HTTPServerRequest) -> dict[str, Any] | None:
        names = [urlsplit(f"//{request.host}").hostname or ""]  # IPv6 without its brackets
        if origin := request.headers.get("Origin"):
            names.append(urlsplit(origin).hostname or "")
        return {} if all(map(is_loopback, names)) else None


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


MAX_GROUPS = 500
"""Those at work come first, then the newest."""
MAX_PREFIXES = 100
NAME_CHARS = 100
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
        spans=scheduler.take_spans(),
        prefixes=_prefixes(scheduler),
    )


def _prefixes(scheduler: Scheduler) -> tuple[PrefixUsage, ...]:
    """Count the tasks of the slowest prefixes, those forgotten, too."""
    found = []
    for name, prefix in scheduler.task_prefixes.items():
        seconds, ended = prefix.all_durations, prefix.state_counts
        tasks = ended["memory"] + ended["erred"]
        found.append(
            PrefixUsage(cut(name, NAME_CHARS), tasks, seconds["compute"], seconds["transfer"])
        )
    return tuple(nlargest(MAX_PREFIXES, found, key=attrgetter("compute_s")))


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
    device, tasks = metrics.get("gputui", {}), metrics.get("task_counts", {})
    waits_for_others = bool(tasks.get("flight") or tasks.get("fetch"))
    first = running[0] if running else None
    ran_s = state.executing.get(first) if first is not None else None
    return WorkerCounts(
        name=str(state.name),
        status=state.status.name,
        executing=len(running),
        ready=len(state.processing) - len(running),
        in_memory=len(state.has_what),
        managed_bytes=state.nbytes,
        spilled_bytes=metrics.get("spilled_bytes", {}).get("disk", 0),
        device_managed_bytes=device.get("device_managed_bytes"),
        device_uuid=device.get("device_uuid"),
        current_task=first.prefix.name if first is not None else None,
        task_since=None if ran_s is None else round(state.last_seen - ran_s, 1),
        silent_s=quiet_s if quiet_s >= bound_s else 0.0,
        fetching=waits_for_others and not tasks.get("executing"),
        moved=tuple((Way(way), size) for way, size in device.get("moved", {}).items()),
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
            workers = [_asked(scheduler, each) for each in task.worker_restrictions or ()]
            asked = (task.resource_restrictions, workers, task.host_restrictions)
            needs[task.group] = tuple(sorted(name for each in asked for name in each or ()))
    return needs


def _asked(scheduler: Scheduler, address: str) -> str:
    """Return the worker that a task is restricted to; started again it has another address."""
    name = scheduler.names.get(address, address)
    gone = name != address and address not in scheduler.workers
    return f"{name} (that process is gone: submit again)" if gone else name


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
