"""Carry out frontends' requests, or preview them.

Each returns its answer, or raises HeadError with why it is refused. `HANDLERS` says which function
does what.
"""

import asyncio
from collections.abc import Callable, Container, Coroutine, Iterable, Mapping
from dataclasses import replace
from typing import Any

from gputui.errors import HeadError
from gputui.fleet import desired
from gputui.fleet.desired import AdaptiveBounds, Desired
from gputui.groups import members
from gputui.head.cluster import Cluster
from gputui.head.scheduler_process import REPORT_INTERVAL_S
from gputui.model.hosts import Host, parse_hosts
from gputui.model.plan import Changes
from gputui.model.snapshot import HostState, Session, Severity, WorkerState
from gputui.protocol.frontend import (
    Adapt,
    AddWorkers,
    AwaitWorkers,
    CancelRun,
    ChangeHosts,
    Done,
    Examine,
    Examined,
    KeepWatching,
    Previewed,
    Reply,
    Restart,
    RetireWorkers,
    RetryHosts,
    Scale,
    Settled,
    StartRun,
    Stop,
)
from gputui.protocol.programs import is_program
from gputui.protocol.scheduler import Aim

EXAMINED_S = 2.2
"""How long agents may take to examine their workers."""
NO_HOST = "no host {} in this cluster"


async def _await_workers(cluster: Cluster, request: AwaitWorkers) -> Reply:
    await cluster.until(lambda: _enough(cluster, request.workers))
    fleet = cluster.fleet
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


def _enough(cluster: Cluster, workers: int | None) -> bool:
    wanted = cluster.fleet.desired.workers if workers is None else workers
    if wanted is not None and len(cluster.fleet.worker_table.up) >= wanted:
        return True
    if cluster.adaptive and wanted is not None and wanted <= cluster.adaptive.bounds[1]:
        return False  # as many may come
    watched = not cluster.fleet.scheduler_wanted.is_set()
    return (watched or cluster.scheduler.started is not None) and cluster.fleet.settled


async def _scale(cluster: Cluster, request: Scale) -> Reply:
    fleet, workers = cluster.fleet, request.workers
    if workers is not None and workers < 0:
        raise HeadError(f"{workers} workers: write 0 or more")
    number = "as many workers as the hosts give" if workers is None else f"{workers} workers"
    if request.host is None:
        wanted, where = desired.scale(fleet.desired, workers), ""
    else:
        _check(NO_HOST, [request.host], _host_names(cluster))
        running, where = fleet.worker_table.staying, f" on {request.host}"
        wanted = desired.scale_host(fleet.desired, request.host, workers, running)
    more = _lacking(cluster, request, wanted)
    return _change(cluster, request, wanted, f"wanted{where}: {number}", more)


async def _retire(cluster: Cluster, request: RetireWorkers) -> Reply:
    _check("no worker {}", request.names, cluster.fleet.worker_table)
    return _change(cluster, request, desired.retire(cluster.fleet.desired, request.names))


async def _add(cluster: Cluster, request: AddWorkers) -> Reply:
    running = cluster.fleet.worker_table.staying
    if taken := [name for name in request.names if name in running]:
        raise HeadError(f"there is a worker already: {', '.join(taken)}")
    wanted = desired.add(cluster.fleet.desired, request.names, running)
    _check("no free slot named {}", request.names, {spec.name for spec in cluster.fleet.slots()})
    return _change(cluster, request, wanted)


def _change(
    cluster: Cluster,
    request: Scale | RetireWorkers | AddWorkers,
    wanted: Desired,
    event: str = "",
    more: str = "",
) -> Reply:
    if request.preview:
        return _previewed(cluster, request.request, cluster.fleet.preview(wanted), more)
    cluster.adaptive = None
    if event:
        cluster.tell(Severity.INFO, "cluster", "scaled", event)
    changes = cluster.fleet.set_desired(wanted)
    text = f"{len(changes.starts)} start, {len(changes.stops)} stop"
    return Done(request.request, _joined(text, more))


async def _restart(cluster: Cluster, request: Restart) -> Reply:
    names = _workers_of(cluster, request.names)
    cluster.fleet.restart(names)
    text = f"{len(names)} workers restart"
    cluster.tell(Severity.INFO, "cluster", "restarted", f"{text}: {', '.join(names)}")
    return Done(request.request, text)


async def _adapt(cluster: Cluster, request: Adapt) -> Reply:
    if request.on and not 0 <= request.minimum <= request.maximum:
        bounds = f"bounds {request.minimum} to {request.maximum}"
        raise HeadError(f"{bounds}: the lower one comes first")
    cluster.adaptive = None
    if request.on:
        every = max(1, round(request.interval_s / REPORT_INTERVAL_S))
        cluster.adaptive = AdaptiveBounds(
            request.minimum, request.maximum, request.wait_count, every
        )
        cluster.scheduler.send(Aim(request.target_duration_s))
    bounds = f"between {request.minimum} and {request.maximum} workers"
    text = f"adaptive: {bounds}" if request.on else "no longer adaptive"
    cluster.tell(Severity.INFO, "cluster", "scaled", text)
    return Done(request.request, text)


async def _change_hosts(cluster: Cluster, request: ChangeHosts) -> Reply:
    fleet = cluster.fleet
    named = (
        await asyncio.to_thread(parse_hosts, request.text, members=members) if request.text else ()
    )
    _check(NO_HOST, request.remove, _host_names(cluster))
    there = {host.name: host for host in fleet.hosts}
    gone = [*request.remove]
    if request.replace:
        gone += [name for name in there if name not in {host.name for host in named}]
    new = [host for host in named if host.name not in there]
    known = [(host, there[host.name]) for host in named if host.name in there]
    changed = [host for host, now in known if replace(host, line=now.line) != now]
    if known and not request.replace:
        names = ", ".join(host.name for host, _ in known)
        raise HeadError(f"part of this cluster already: {names}")
    remote = [host.name for host in new if not host.is_local]
    if cluster.local_only and remote:
        raise HeadError(
            f"cannot add {', '.join(remote)}: this cluster was started on this machine alone and "
            "listens on loopback only; start one whose hosts name another machine"
        )
    text = _hosts_text(new, gone, changed)
    left = tuple(host for host in fleet.hosts if host.name not in gone)
    if request.preview:
        changes = fleet.preview(fleet.desired, left)
        stops = (*changes.stops, *(n for name in gone for n in fleet.worker_table.of_host(name)))
        return _previewed(cluster, request.request, Changes(changes.starts, stops), text)
    fleet.add_hosts(new)
    fleet.remove_hosts(gone)
    cluster.tell(Severity.INFO, "cluster", "changed", text)
    return Done(request.request, text)


async def _retry(cluster: Cluster, request: RetryHosts) -> Reply:
    _check(NO_HOST, request.names, _host_names(cluster))
    tried = cluster.fleet.retry(request.names or [host.name for host in cluster.fleet.hosts])
    return Done(request.request, f"trying {', '.join(tried) or 'nothing'} again")


async def _examine(cluster: Cluster, request: Examine) -> Reply:
    scheduler, hosts = await asyncio.gather(
        cluster.scheduler.examine(), cluster.fleet.examine(EXAMINED_S)
    )
    values = {value for host in cluster.fleet.hosts for _, value in host.env}
    return Examined(request.request, hosts, scheduler, tuple(sorted(values)))


async def start_run(cluster: Cluster, request: StartRun, session: Session) -> Reply:
    if not (cluster.fleet.worker_table.up or is_program(request.preset)):
        raise HeadError("no worker is up yet")
    return Done(request.request, await cluster.runs.start(request, session.user))


async def _cancel_run(cluster: Cluster, request: CancelRun) -> Reply:
    await cluster.runs.cancel(request.id)
    return Done(request.request, "cancelled")


async def _keep_watching(cluster: Cluster, request: KeepWatching) -> Reply:
    cluster.kept = True
    return Done(request.request, "kept")


async def stop(cluster: Cluster, request: Stop, session: Session) -> Reply:
    asyncio.get_running_loop().call_soon(cluster.stop, f"stopped by {session}")
    return Done(request.request, "stopping")


def _lacking(cluster: Cluster, request: Scale, wanted: Desired) -> str:
    """Say how much of the requested number does not fit."""
    changes = cluster.fleet.preview(wanted)
    stops = set(changes.stops)
    there = [
        name
        for name, host in cluster.fleet.worker_table.staying.items()
        if request.host in (None, host) and name not in stops
    ]
    starts = [spec for spec in changes.starts if request.host in (None, spec.host)]
    have = len(there) + len(starts)
    if request.workers is None or have >= request.workers:
        return ""
    return f"there is room for {have} only"


def _previewed(cluster: Cluster, request: int, changes: Changes, more: str = "") -> Previewed:
    results, held_bytes = cluster.fleet.worker_table.held(changes.stops)
    words = ""
    if changes.stops:
        words = "they hold nothing"
        if results:
            words = f"{results} results ({held_bytes / 2**30:.1f} GiB) move to other workers first"
    starts = tuple(spec.name for spec in changes.starts)
    return Previewed(request, starts, changes.stops, _joined(more, words))


def _joined(*words: str) -> str:
    return "; ".join(word for word in words if word)


def _hosts_text(new: list[Host], gone: list[str], changed: list[Host]) -> str:
    words = [f"add {', '.join(host.name for host in new)}"] if new else []
    words += [f"remove {', '.join(gone)}"] if gone else []
    if changed:
        names = ", ".join(host.name for host in changed)
        words.append(f"other options of {names} wait until it is removed and added again")
    return "; ".join(words) or "nothing changes"


def _host_names(cluster: Cluster) -> set[str]:
    return {host.name for host in cluster.fleet.hosts}


def _check(refusal: str, names: Iterable[str], known: Container[str]) -> None:
    if unknown := [name for name in names if name not in known]:
        raise HeadError(refusal.format(", ".join(unknown)))


def _workers_of(cluster: Cluster, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the workers named, those of hosts named, or all with none named."""
    worker_table = cluster.fleet.worker_table
    if not names:
        return tuple(worker_table.staying)
    hosts = _host_names(cluster)
    _check("no worker {}", [name for name in names if name not in hosts], worker_table)
    return tuple(
        w for name in names for w in (worker_table.of_host(name) if name in hosts else (name,))
    )


HANDLERS: Mapping[type, Callable[[Cluster, Any], Coroutine[Any, Any, Reply]]] = {
    AwaitWorkers: _await_workers,
    Scale: _scale,
    RetireWorkers: _retire,
    AddWorkers: _add,
    Restart: _restart,
    Adapt: _adapt,
    ChangeHosts: _change_hosts,
    RetryHosts: _retry,
    CancelRun: _cancel_run,
    Examine: _examine,
    KeepWatching: _keep_watching,
}
