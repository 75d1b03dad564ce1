"""Carry out what frontends ask a head for, or preview it.

A request returns its answer, or raises HeadError with why it is refused. `HANDLERS` says which
function does what.
"""

import asyncio
import logging
from collections.abc import Callable, Container, Coroutine, Iterable, Mapping
from functools import partial
from typing import Any

from gputui.errors import HeadError
from gputui.fleet import desired
from gputui.fleet.desired import Desired
from gputui.groups import members
from gputui.head.head import Head
from gputui.head.server import Answering, FrontendConnection
from gputui.model.bounds import MOST_WORKERS
from gputui.model.hosts import parse_hosts
from gputui.model.plain_text import many, size
from gputui.model.plan import Changes
from gputui.model.snapshot import HostState, Session, Severity, WorkerState
from gputui.protocol.frontend import (
    AddWorkers,
    Answer,
    AwaitWorkers,
    CancelRun,
    ChangeHosts,
    Done,
    Examine,
    Examined,
    FromFrontend,
    KeepWatching,
    Previewed,
    ReadMetrics,
    Reply,
    ReportRun,
    Request,
    Restart,
    RetireWorkers,
    RetryHosts,
    Scale,
    Settled,
    SnapshotTaken,
    StartRun,
    Stop,
)
from gputui.protocol.programs import (
    BytesTaken,
    EndRun,
    ProgramInput,
    ResizeTerminal,
    RunPrograms,
    SignalProgram,
    is_program,
)
from gputui.protocol.shared import FollowLogs
from gputui.protocol.starter import ConfigureHead

logger = logging.getLogger(__name__)

EXAMINED_S = 2.2
"""How long agents may take to examine their workers."""
NO_HOST = "no host {} in this cluster"


async def _await_workers(head: Head, frontend: FrontendConnection, request: AwaitWorkers) -> Reply:
    await head.until(lambda: _enough(head, request.workers))
    if frontend.snapshots:  # what hosts warn of is told before a run begins
        frontend.send(SnapshotTaken(head.view.take()))
    fleet = head.fleet
    slot = next(iter(fleet.slots()), None)
    return Settled(
        request.request,
        workers=fleet.worker_table.up,
        failed_hosts=tuple(s for s in fleet.host_statuses if s.state is HostState.FAILED),
        failed_workers=tuple(s for s in fleet.worker_statuses if s.state is WorkerState.CRASH_LOOP),
        wanted=tuple(fleet.worker_table.staying),
        worker_size=(slot.nthreads, slot.memory_limit_bytes) if slot else (0, 0),
        lacking=fleet.free_gpus.lacking,
    )


def _enough(head: Head, workers: int | None) -> bool:
    wanted = head.fleet.desired.workers if workers is None else workers
    if wanted is not None and len(head.fleet.worker_table.up) >= wanted:
        return True
    watched = not head.fleet.scheduler_wanted.is_set()
    return (watched or head.scheduler.started is not None) and head.fleet.settled


async def _scale(head: Head, request: Scale) -> Reply:
    workers = request.workers
    if workers is not None and not 0 <= workers <= MOST_WORKERS:
        raise HeadError(f"{many(workers, 'worker')}: write a number from 0 to {MOST_WORKERS}")
    number = "as many workers as the hosts give" if workers is None else many(workers, "worker")
    wanted = desired.scale(head.fleet.desired, workers)
    return _change(head, request, wanted, f"wanted: {number}", _lacking(head, request, wanted))


async def _retire(head: Head, request: RetireWorkers) -> Reply:
    _check("no worker {}", request.names, head.fleet.worker_table)
    return _change(head, request, desired.retire(head.fleet.desired, request.names))


async def _add(head: Head, request: AddWorkers) -> Reply:
    running = head.fleet.worker_table.staying
    if taken := [name for name in request.names if name in running]:
        raise HeadError(f"there is a worker already: {', '.join(taken)}")
    wanted = desired.add(head.fleet.desired, request.names, running)
    _check("no free slot named {}", request.names, {spec.name for spec in head.fleet.slots()})
    return _change(head, request, wanted)


def _change(
    head: Head,
    request: Scale | RetireWorkers | AddWorkers,
    wanted: Desired,
    event: str = "",
    more: str = "",
) -> Reply:
    if request.preview:
        return _previewed(head, request.request, head.fleet.preview(wanted), more)
    if event:
        head.tell(Severity.INFO, "cluster", "scaled", event)
    changes = head.fleet.set_desired(wanted)
    text = f"{len(changes.starts)} start, {len(changes.stops)} stop"
    return Done(request.request, "; ".join(filter(None, (text, more))))


async def _restart(head: Head, request: Restart) -> Reply:
    names = _workers_of(head, request.names)
    head.fleet.worker_table.restart(names)
    text = f"restarting {many(len(names), 'worker')}"
    head.tell(Severity.INFO, "cluster", "restarted", f"{text}: {', '.join(names)}")
    return Done(request.request, text)


async def _change_hosts(head: Head, request: ChangeHosts) -> Reply:
    new = (
        await asyncio.to_thread(parse_hosts, request.text, members=members) if request.text else ()
    )
    fleet, names = head.fleet, _host_names(head)
    _check(NO_HOST, request.remove, names)
    if known := [host.name for host in new if host.name in names]:
        raise HeadError(f"part of this cluster already: {', '.join(known)}")
    remote = [host.name for host in new if not host.is_local]
    if head.local_only and remote:
        raise HeadError(
            f"cannot add {', '.join(remote)}: this cluster was started on this machine alone and "
            "listens on loopback only; start one whose hosts name another machine"
        )
    said = ("add", [host.name for host in new]), ("remove", request.remove)
    text = "; ".join(f"{verb} {', '.join(those)}" for verb, those in said if those)
    left = tuple(host for host in fleet.hosts if host.name not in request.remove)
    if request.preview:
        changes = fleet.preview(fleet.desired, left)
        gone = (n for name in request.remove for n in fleet.worker_table.of_host(name))
        stops = (*changes.stops, *gone)
        return _previewed(head, request.request, Changes(changes.starts, stops), text)
    fleet.add_hosts(new)
    fleet.remove_hosts(request.remove)
    head.tell(Severity.INFO, "cluster", "changed", text)
    return Done(request.request, text)


async def _retry(head: Head, request: RetryHosts) -> Reply:
    _check(NO_HOST, request.names, _host_names(head))
    tried = head.fleet.retry(request.names or [host.name for host in head.fleet.hosts])
    return Done(request.request, f"trying {', '.join(tried) or 'nothing'} again")


async def _examine(head: Head, request: Examine) -> Reply:
    scheduler, hosts = await asyncio.gather(
        head.scheduler.examine(), head.fleet.examine(EXAMINED_S)
    )
    values = {value for host in head.fleet.hosts for _, value in host.env}
    return Examined(request.request, hosts, scheduler, tuple(sorted(values)))


async def _start_run(head: Head, request: StartRun, session: Session) -> Reply:
    if not (head.fleet.worker_table.up or is_program(request.preset)):
        raise HeadError("no worker is up yet")
    return Done(request.request, await head.runs.start(request, session.user))


async def _cancel_run(head: Head, request: CancelRun) -> Reply:
    await head.runs.cancel(request.id)
    return Done(request.request, "cancelled")


async def _read_metrics(head: Head, request: ReadMetrics) -> Reply:
    return Done(request.request, head.metrics_text())


async def _keep_watching(head: Head, request: KeepWatching) -> Reply:
    head.kept = True
    return Done(request.request, "kept")


async def _stop(head: Head, request: Stop, session: Session) -> Reply:
    asyncio.get_running_loop().call_soon(head.stop, f"stopped by {session}")
    return Done(request.request, "stopping")


def _lacking(head: Head, request: Scale, wanted: Desired) -> str:
    """Say how much of the requested number does not fit, also once those that leave are gone."""
    changes, table = head.fleet.preview(wanted), head.fleet.worker_table
    have = len(table.staying.keys() - changes.stops) + len(changes.starts) + len(table.leaving)
    fits = request.workers is None or have >= request.workers
    return "" if fits else f"there is room for {have} only"


def _previewed(head: Head, request: int, changes: Changes, more: str) -> Previewed:
    results, held_bytes = head.fleet.worker_table.held(changes.stops)
    held = "they hold nothing"
    if results:
        held = f"moved to other workers first: {many(results, 'result')} ({size(held_bytes)})"
    words = filter(None, (more, held if changes.stops else ""))
    starts = tuple(spec.name for spec in changes.starts)
    return Previewed(request, starts, changes.stops, "; ".join(words))


def _host_names(head: Head) -> set[str]:
    return {host.name for host in head.fleet.hosts}


def _check(refusal: str, names: Iterable[str], known: Container[str]) -> None:
    if unknown := [name for name in names if name not in known]:
        raise HeadError(refusal.format(", ".join(unknown)))


def _workers_of(head: Head, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the workers named, those of hosts named, or all with none named."""
    worker_table = head.fleet.worker_table
    if not names:
        return tuple(worker_table.staying)
    hosts = _host_names(head)
    _check("no worker {}", [name for name in names if name not in hosts], worker_table)
    return tuple(
        w for name in names for w in (worker_table.of_host(name) if name in hosts else (name,))
    )


HANDLERS: Mapping[type, Callable[[Head, Any], Coroutine[Any, Any, Reply]]] = {
    Scale: _scale,
    RetireWorkers: _retire,
    AddWorkers: _add,
    Restart: _restart,
    ChangeHosts: _change_hosts,
    RetryHosts: _retry,
    CancelRun: _cancel_run,
    Examine: _examine,
    KeepWatching: _keep_watching,
    ReadMetrics: _read_metrics,
}


def head_of(config: ConfigureHead, **parts: Any) -> Head:
    """Return a head that carries out what frontends ask for; its parts are those of `Head`."""
    head = Head(config, **parts)
    head.server.received = partial(received, head)
    return head


def received(head: Head, frontend: FrontendConnection, message: FromFrontend) -> Answering:
    """Handle a frontend's message; return the coroutine whose result answers a request."""
    match message:
        case ReportRun():
            head.runs.report(frontend, message)
        case FollowLogs(on):
            head.logs.subscribe(frontend, on)
        case Answer():
            head.questions.take(message)
        case ProgramInput() | BytesTaken() | SignalProgram() | ResizeTerminal():
            head.fleet.programs.said(message)
        case EndRun(run, grace_s):
            head.fleet.programs.end(run, grace_s)
        case RunPrograms():
            return head.fleet.programs.start(message, frontend.send)
        case AwaitWorkers():
            return _await_workers(head, frontend, message)
        case Stop():
            return _stop(head, message, frontend.session)
        case StartRun():
            return _start_run(head, message, frontend.session)
        case _ if isinstance(message, Request):
            return HANDLERS[type(message)](head, message)
        case _:
            logger.warning("a frontend sent %s", type(message).__name__)
    return None
