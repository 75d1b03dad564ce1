"""Carry out what frontends ask of a simulated cluster, or say what it would do, as a head does.

Each request is answered by `Done`, `Previewed` or `Refused` with its number.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from gputui import presets
from gputui.demo.simulator import Simulator
from gputui.errors import GputuiError, HostsError
from gputui.protocol.frontend import (
    Adapt,
    AddWorkers,
    Answer,
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
    StartRun,
)
from gputui.protocol.shared import Refused
from gputui.snapshot import HostState, RunState, Severity


class NotDoneError(GputuiError):
    """A request that cannot be carried out."""


def carry_out(simulator: Simulator, request: Request) -> Reply | Refused:
    """Carry out a request at the simulator's present."""
    handler = _HANDLERS.get(type(request))
    if handler is None:
        return Refused(request.request, f"a demo cannot do this: {type(request).__name__}")
    try:
        return handler(simulator, request)
    except GputuiError as error:
        return Refused(request.request, str(error))


def answer(simulator: Simulator, message: Answer) -> None:
    """Take a person's answer; a question that was withdrawn is let be."""
    question = simulator.event_log.withdraw(message.question)
    if question is not None:
        host = simulator.population.hosts[question.host]
        yes = (message.text or "").lower() in ("y", "yes")
        host.answer(yes, simulator.now)
        text = "its key was added to known_hosts" if yes else host.reason
        severity = Severity.INFO if yes else Severity.ERROR
        simulator.event_log.tell(simulator.now, severity, host.name, "answered", text)


def _scale(simulator: Simulator, request: Scale) -> Reply:
    population = simulator.population
    _check_hosts(simulator, [request.host] if request.host else [])
    ranked = population.cheapest(request.host)
    free = population.free_slots(request.host)
    wanted = len(ranked) + len(free) if request.workers is None else request.workers
    starts = tuple(free[: max(0, wanted - len(ranked))])
    stops = tuple(ranked[: max(0, len(ranked) - wanted)])
    lacking = wanted - len(ranked) - len(starts)
    if request.preview:
        more = f"there are GPUs for {wanted - lacking} only" if lacking > 0 else ""
        return _previewed(simulator, request.request, starts, stops, more)
    simulator.wanted = request.workers if request.host is None else simulator.wanted
    simulator.adaptive = None
    simulator.scale(wanted, simulator.now, request.host)
    text = f"wanted: {wanted} workers" + (f" on {request.host}" if request.host else "")
    _tell(simulator, "scaled", text)
    return Done(request.request, _counted(starts, stops))


def _retire(simulator: Simulator, request: RetireWorkers) -> Reply:
    names = _known_workers(simulator, request.names)
    if request.preview:
        return _previewed(simulator, request.request, (), names)
    for name in names:
        simulator.population.retire(name, simulator.now)
    simulator.wanted = simulator.population.workers_wanted
    return Done(request.request, _counted((), names))


def _add(simulator: Simulator, request: AddWorkers) -> Reply:
    free = set(simulator.population.free_slots())
    taken = [name for name in request.names if name not in free]
    if taken:
        raise NotDoneError(f"{', '.join(taken)}: there is a worker already, or no GPU to use")
    if request.preview:
        return _previewed(simulator, request.request, request.names, ())
    for name in request.names:
        simulator.population.start(name, simulator.now)
    simulator.wanted = simulator.population.workers_wanted
    return Done(request.request, _counted(request.names, ()))


def _restart(simulator: Simulator, request: Restart) -> Reply:
    population = simulator.population
    names = _workers_of(simulator, request.names)
    for name in names:
        population.crash(population.workers[name], simulator.now, "restarted on request")
    _tell(simulator, "restarted", f"{len(names)} workers restarted on request")
    return Done(request.request, f"{len(names)} workers restart")


def _adapt(simulator: Simulator, request: Adapt) -> Reply:
    if request.on and not 0 <= request.minimum <= request.maximum:
        raise NotDoneError(
            f"bounds {request.minimum} to {request.maximum}: the lower one comes first"
        )
    simulator.adaptive = (request.minimum, request.maximum) if request.on else None
    bounds = f"between {request.minimum} and {request.maximum} workers"
    text = f"adaptive: {bounds}" if request.on else "no longer adaptive"
    _tell(simulator, "scaled", text)
    return Done(request.request, text)


def _change_hosts(simulator: Simulator, request: ChangeHosts) -> Reply:
    from gputui.hosts import parse_hosts

    population = simulator.population
    named = [host.name for host in parse_hosts(request.text)] if request.text else []
    _check_hosts(simulator, request.remove)
    gone = [*request.remove]
    if request.replace:
        gone += [name for name in population.hosts if name not in named]
    new = [name for name in named if name not in population.hosts]
    there = [name for name in named if name in population.hosts]
    if there and not request.replace:
        raise HostsError(tuple(f"{name} is part of this cluster already" for name in there))
    stops = tuple(worker.name for name in gone for worker in population.hosts[name].workers)
    words = [f"add {', '.join(new)}"] if new else []
    words += [f"remove {', '.join(gone)}"] if gone else []
    text = "; ".join(words) or "nothing changes"
    if request.preview:
        return _previewed(simulator, request.request, (), stops, text)
    for name in gone:
        population.remove_host(name, simulator.now)
    population.add_hosts(new, simulator.now)
    _tell(simulator, "changed", text)
    return Done(request.request, text)


def _retry(simulator: Simulator, request: RetryHosts) -> Reply:
    _check_hosts(simulator, request.names)
    hosts = simulator.population.hosts
    names = [
        name
        for name in request.names or hosts
        if hosts[name].state in (HostState.REFUSED, HostState.SILENT)
    ]
    for name in names:
        hosts[name].retry(simulator.now)
    return Done(request.request, f"trying {', '.join(names) or 'nothing'} again")


def _start_run(simulator: Simulator, request: StartRun) -> Reply:
    preset = presets.get(request.preset)
    presets.parse_parameters(preset, dict(request.parameters))
    workers = simulator.population.workers_up
    if not workers:
        raise NotDoneError("no worker is up yet")
    run = simulator.workload.begin(request.preset, request.parameters, simulator.now, workers)
    return Done(request.request, run.id)


def _cancel_run(simulator: Simulator, request: CancelRun) -> Reply:
    for run in simulator.workload.runs:
        if run.id == request.id:
            simulator.workload.end(run, RunState.CANCELLED, simulator.now, "cancelled")
            return Done(request.request, f"{run.preset} cancelled")
    raise NotDoneError(f"no run {request.id} is under way")


def _previewed(
    simulator: Simulator,
    request: int,
    starts: tuple[str, ...],
    stops: tuple[str, ...],
    more: str = "",
) -> Previewed:
    workers = simulator.population.workers
    results = sum(workers[name].in_memory for name in stops)
    held = sum(workers[name].managed_bytes for name in stops)
    moves = f"{results} results ({held / 2**30:.1f} GiB) move to other workers first"
    words = [more] if more else []
    if stops:
        words.append(moves if results else "they hold nothing")
    return Previewed(request, starts, stops, "; ".join(words))


def _counted(starts: Iterable[str], stops: Iterable[str]) -> str:
    return f"{len(tuple(starts))} start, {len(tuple(stops))} stop"


def _tell(simulator: Simulator, kind: str, text: str) -> None:
    simulator.event_log.tell(simulator.now, Severity.INFO, "cluster", kind, text)


def _check_hosts(simulator: Simulator, names: Iterable[str]) -> None:
    unknown = [name for name in names if name not in simulator.population.hosts]
    if unknown:
        raise NotDoneError(f"no host {', '.join(unknown)} in this cluster")


def _known_workers(simulator: Simulator, names: tuple[str, ...]) -> tuple[str, ...]:
    unknown = [name for name in names if name not in simulator.population.workers]
    if unknown:
        raise NotDoneError(f"no worker {', '.join(unknown)}")
    return names


def _workers_of(simulator: Simulator, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the workers named, those of hosts named, or all with none named."""
    population = simulator.population
    if not names:
        return tuple(population.workers)
    found: list[str] = []
    for name in names:
        if name in population.hosts:
            found += [worker.name for worker in population.hosts[name].workers]
        else:
            found += _known_workers(simulator, (name,))
    return tuple(found)


_HANDLERS: Mapping[type, Callable[[Simulator, Any], Reply]] = {
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
