"""Carry out frontends' requests, or preview them.

Each request is answered by `Done`, `Previewed`, `Settled` or `Refused` with its number. One table
says which function does what.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gputui.errors import GputuiError, HeadError
from gputui.fleet import desired
from gputui.fleet.desired import AdaptiveBounds, Desired
from gputui.head.scheduler_runner import REPORT_INTERVAL_S
from gputui.model.hosts import Host, parse_hosts
from gputui.model.plan import Changes
from gputui.model.snapshot import HostState, Session, Severity, WorkerState
from gputui.process.background import words
from gputui.protocol.frontend import (
    Adapt,
    AddWorkers,
    AwaitWorkers,
    CancelRun,
    ChangeHosts,
    Done,
    Previewed,
    Reply,
    Request,
    Restart,
    RetireWorkers,
    RetryHosts,
    Scale,
    Settled,
    StartRun,
    Stop,
)
from gputui.protocol.shared import Refused

if TYPE_CHECKING:
    from gputui.head.head import Head

logger = logging.getLogger(__name__)


async def carry_out(head: "Head", request: Request, session: Session) -> Reply | Refused:
    """Carry out a request and return its answer; there is always one."""
    try:
        if isinstance(request, Stop):
            return _stop(head, request, session)
        return await _HANDLERS[type(request)](head, request)
    except GputuiError as error:
        return Refused(request.request, str(error))
    except Exception as error:
        logger.exception("%s could not be carried out", type(request).__name__)
        text = f"{type(request).__name__} failed in the head: {words(error)}; its log says where"
        return Refused(request.request, text)


async def _await_workers(head: "Head", request: AwaitWorkers) -> Reply:
    await head.until(lambda: _enough(head, request.workers))
    fleet = head.fleet
    slot = next(iter(fleet.slots()), None)
    return Settled(
        request.request,
        workers=fleet.worker_table.up,
        failed_hosts=tuple(s for s in fleet.host_statuses if s.state is HostState.FAILED),
        failed_workers=tuple(s for s in fleet.worker_statuses if s.state is WorkerState.CRASH_LOOP),
        wanted=tuple(fleet.worker_table.staying),
        worker_size=(slot.nthreads, slot.memory_limit_bytes) if slot else (0, 0),
    )


def _enough(head: "Head", workers: int | None) -> bool:
    wanted = head.fleet.desired.workers if workers is None else workers
    if wanted is not None and head.fleet.worker_table.up_count >= wanted:
        return True
    if head.adaptive and wanted is not None and wanted <= head.adaptive.bounds[1]:
        return False  # as many may come
    return head.scheduler_runner.process.started is not None and head.fleet.settled


async def _scale(head: "Head", request: Scale) -> Reply:
    fleet = head.fleet
    if request.workers is not None and request.workers < 0:
        raise HeadError(f"{request.workers} workers: write 0 or more")
    if request.host is None:
        wanted = desired.scale(fleet.desired, request.workers)
        words = f"wanted: {_number(request.workers)}"
    else:
        _check_hosts(head, [request.host])
        running = fleet.worker_table.staying
        wanted = desired.scale_host(fleet.desired, request.host, request.workers, running)
        words = f"wanted on {request.host}: {_number(request.workers)}"
    more = _lacking(head, request, wanted)
    if request.preview:
        return _previewed(head, request.request, fleet.preview(wanted), more)
    head.adaptive = None
    head.tell(Severity.INFO, "cluster", "scaled", words)
    return Done(request.request, _joined(_counted(fleet.set_desired(wanted)), more))


async def _retire(head: "Head", request: RetireWorkers) -> Reply:
    _check_workers(head, request.names)
    return _change(head, request, desired.retire(head.fleet.desired, request.names))


async def _add(head: "Head", request: AddWorkers) -> Reply:
    running = head.fleet.worker_table.staying
    if taken := [name for name in request.names if name in running]:
        raise HeadError(f"there is a worker already: {', '.join(taken)}")
    wanted = desired.add(head.fleet.desired, request.names, running)
    free = {spec.name for spec in head.fleet.slots()}
    if unknown := [name for name in request.names if name not in free]:
        raise HeadError(f"no free slot named {', '.join(unknown)}")
    return _change(head, request, wanted)


def _change(head: "Head", request: RetireWorkers | AddWorkers, wanted: Desired) -> Reply:
    if request.preview:
        return _previewed(head, request.request, head.fleet.preview(wanted))
    head.adaptive = None
    return Done(request.request, _counted(head.fleet.set_desired(wanted)))


async def _restart(head: "Head", request: Restart) -> Reply:
    names = _workers_of(head, request.names)
    head.fleet.restart(names)
    text = f"{len(names)} workers restart"
    head.tell(Severity.INFO, "cluster", "restarted", f"{text}: {', '.join(names)}")
    return Done(request.request, text)


async def _adapt(head: "Head", request: Adapt) -> Reply:
    if request.on and not 0 <= request.minimum <= request.maximum:
        bounds = f"bounds {request.minimum} to {request.maximum}"
        raise HeadError(f"{bounds}: the lower one comes first")
    head.adaptive = None
    if request.on:
        every = max(1, round(request.interval_s / REPORT_INTERVAL_S))
        head.adaptive = AdaptiveBounds(request.minimum, request.maximum, request.wait_count, every)
        head.scheduler_runner.process.aim(request.target_duration_s)
    bounds = f"between {request.minimum} and {request.maximum} workers"
    text = f"adaptive: {bounds}" if request.on else "no longer adaptive"
    head.tell(Severity.INFO, "cluster", "scaled", text)
    return Done(request.request, text)


async def _change_hosts(head: "Head", request: ChangeHosts) -> Reply:
    fleet = head.fleet
    named = parse_hosts(request.text) if request.text else ()
    _check_hosts(head, request.remove)
    there = {host.name: host for host in fleet.hosts}
    gone = [*request.remove]
    if request.replace:
        gone += [name for name in there if name not in {host.name for host in named}]
    new = [host for host in named if host.name not in there]
    changed = [host for host in named if host.name in there and not _same(host, there[host.name])]
    if not request.replace and len(new) < len(named):
        known = ", ".join(host.name for host in named if host.name in there)
        raise HeadError(f"part of this cluster already: {known}")
    _check_reachable(head, new)
    text = _hosts_text(new, gone, changed)
    left = tuple(host for host in fleet.hosts if host.name not in gone)
    if request.preview:
        changes = fleet.preview(fleet.desired, left)
        stops = (*changes.stops, *(n for name in gone for n in fleet.worker_table.of_host(name)))
        return _previewed(head, request.request, Changes(changes.starts, stops), text)
    fleet.add_hosts(new)
    fleet.remove_hosts(gone)
    head.tell(Severity.INFO, "cluster", "changed", text)
    return Done(request.request, text)


async def _retry(head: "Head", request: RetryHosts) -> Reply:
    _check_hosts(head, request.names)
    tried = head.fleet.retry(request.names or [host.name for host in head.fleet.hosts])
    return Done(request.request, f"trying {', '.join(tried) or 'nothing'} again")


async def _start_run(head: "Head", request: StartRun) -> Reply:
    if not head.fleet.worker_table.up_count:
        raise HeadError("no worker is up yet")
    return Done(request.request, await head.runs.start(request))


async def _cancel_run(head: "Head", request: CancelRun) -> Reply:
    await head.runs.cancel(request.id)
    return Done(request.request, "cancelled")


def _stop(head: "Head", request: Stop, session: Session) -> Reply:
    asyncio.get_running_loop().call_soon(head.stop, f"stopped by {session}")
    return Done(request.request, "stopping")


def _lacking(head: "Head", request: Scale, wanted: Desired) -> str:
    """Say how much of the requested number does not fit."""
    changes = head.fleet.preview(wanted)
    stops = set(changes.stops)
    there = [
        name
        for name, host in head.fleet.worker_table.staying.items()
        if request.host in (None, host) and name not in stops
    ]
    starts = [spec for spec in changes.starts if request.host in (None, spec.host)]
    have = len(there) + len(starts)
    if request.workers is None or have >= request.workers:
        return ""
    return f"there is room for {have} only"


def _previewed(head: "Head", request: int, changes: Changes, more: str = "") -> Previewed:
    results, held_bytes = head.fleet.worker_table.held(changes.stops)
    words = ""
    if changes.stops:
        words = "they hold nothing"
        if results:
            words = f"{results} results ({held_bytes / 2**30:.1f} GiB) move to other workers first"
    starts = tuple(spec.name for spec in changes.starts)
    return Previewed(request, starts, changes.stops, _joined(more, words))


def _joined(*words: str) -> str:
    return "; ".join(word for word in words if word)


def _counted(changes: Changes) -> str:
    return f"{len(changes.starts)} start, {len(changes.stops)} stop"


def _number(workers: int | None) -> str:
    return "as many workers as the hosts give" if workers is None else f"{workers} workers"


def _same(one: Host, other: Host) -> bool:
    """Return whether two lines ask for the same."""
    return replace(one, line=0) == replace(other, line=0)


def _hosts_text(new: list[Host], gone: list[str], changed: list[Host]) -> str:
    words = [f"add {', '.join(host.name for host in new)}"] if new else []
    words += [f"remove {', '.join(gone)}"] if gone else []
    if changed:
        names = ", ".join(host.name for host in changed)
        words.append(f"other options of {names} wait until it is removed and added again")
    return "; ".join(words) or "nothing changes"


def _check_reachable(head: "Head", new: Iterable[Host]) -> None:
    """Raise HeadError for another machine, where the cluster listens on loopback only."""
    remote = [host.name for host in new if not host.is_local]
    if head.local_only and remote:
        raise HeadError(
            f"cannot add {', '.join(remote)}: this cluster was started on this machine alone and "
            "listens on loopback only; start one whose hosts name another machine"
        )


def _check_hosts(head: "Head", names: Iterable[str]) -> None:
    known = {host.name for host in head.fleet.hosts}
    if unknown := [name for name in names if name not in known]:
        raise HeadError(f"no host {', '.join(unknown)} in this cluster")


def _check_workers(head: "Head", names: Iterable[str]) -> None:
    if unknown := [name for name in names if name not in head.fleet.worker_table]:
        raise HeadError(f"no worker {', '.join(unknown)}")


def _workers_of(head: "Head", names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the workers named, those of hosts named, or all with none named."""
    worker_table = head.fleet.worker_table
    if not names:
        return tuple(worker_table.staying)
    hosts = {host.name for host in head.fleet.hosts}
    _check_workers(head, [name for name in names if name not in hosts])
    return tuple(
        w for name in names for w in (worker_table.of_host(name) if name in hosts else (name,))
    )


_HANDLERS: Mapping[type, Callable[["Head", Any], Awaitable[Reply]]] = {
    AwaitWorkers: _await_workers,
    Scale: _scale,
    RetireWorkers: _retire,
    AddWorkers: _add,
    Restart: _restart,
    Adapt: _adapt,
    ChangeHosts: _change_hosts,
    RetryHosts: _retry,
    StartRun: _start_run,
    CancelRun: _cancel_run,
}
