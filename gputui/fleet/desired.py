"""How many workers are wanted, and where: requests change a `Desired`, `decide` says what to do.

Pure, so that a preview on the screen and the change itself come from the same function.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from gputui.hosts import Host
from gputui.plan import Changes, HostCapacity, WorkerSpec, changes, plan


@dataclass(frozen=True, slots=True)
class Desired:
    """What people asked for."""

    workers: int | None = None
    """How many in all; None is as many as the hosts give."""
    limits: tuple[tuple[str, int], ...] = ()
    """Host → how many there at most."""
    held_back: frozenset[str] = frozenset()
    """Retired by name: not to be started again by itself."""
    asked: frozenset[str] = frozenset()
    """Asked for by name: started rather than others."""
    kept: frozenset[str] = frozenset()
    """Could not be retired, because what they hold fits nowhere else."""


@dataclass(frozen=True, slots=True)
class Actual:
    """What a decision is made from."""

    hosts: tuple[Host, ...]
    capacities: Mapping[str, HostCapacity]
    """Of the hosts that can run workers now."""
    running: Mapping[str, str]
    """Worker → its host, of those that run or are being started."""
    ranked: tuple[str, ...] = ()
    """The running ones, first the one that is cheapest to give up."""
    leaving: frozenset[str] = frozenset()
    """Those on their way out, whose names are not free before they are gone."""


def scale(demand: Desired, workers: int | None) -> Desired:
    """Want this many in all, wherever they were held back before."""
    return Desired(workers, asked=demand.asked)


def scale_host(
    demand: Desired, host: str, workers: int | None, running: Mapping[str, str]
) -> Desired:
    """Want this many on one host (None: as many as it gives), and elsewhere what there is."""
    there = sum(where == host for where in running.values())
    limits = {name: limit for name, limit in demand.limits if name != host}
    if workers is None:
        return replace(demand, workers=None, limits=tuple(limits.items()))
    total = None if demand.workers is None else max(0, len(running) - there + workers)
    limits[host] = workers
    held_back = frozenset(n for n in demand.held_back if not n.startswith(f"{host}:"))
    return replace(demand, workers=total, limits=tuple(limits.items()), held_back=held_back)


def retire(demand: Desired, names: Iterable[str]) -> Desired:
    """Want these no more, and no others in their place."""
    names = frozenset(names)
    workers = None if demand.workers is None else max(0, demand.workers - len(names))
    return replace(
        demand,
        workers=workers,
        held_back=demand.held_back | names,
        asked=demand.asked - names,
        kept=demand.kept - names,
    )


def add(demand: Desired, names: Iterable[str]) -> Desired:
    """Want these besides those that run."""
    names = frozenset(names)
    hosts = Counter(name.rpartition(":")[0] for name in names)
    return replace(
        demand,
        workers=None if demand.workers is None else demand.workers + len(names),
        limits=tuple((host, limit + hosts[host]) for host, limit in demand.limits),
        held_back=demand.held_back - names,
        asked=demand.asked | names,
    )


def keep(demand: Desired, names: Iterable[str]) -> Desired:
    """Leave these running for what they hold."""
    names = frozenset(names)
    return replace(demand, kept=demand.kept | names, held_back=demand.held_back - names)


def slots(fleet: Actual, demand: Desired) -> tuple[WorkerSpec, ...]:
    """Return every worker that could run, in the order of the hosts."""
    limits = dict(demand.limits)
    hosts = [_allowed(host, limits.get(host.name), fleet) for host in fleet.hosts]
    every = plan(hosts, fleet.capacities)
    if demand.workers is None:
        return every
    held = sum(spec.name in demand.held_back for spec in every)
    needed = max(demand.workers + held, len(fleet.running))
    specs = plan(hosts, fleet.capacities, needed) if needed > len(every) else every
    return _with_running(specs, hosts, fleet)


def _with_running(
    specs: tuple[WorkerSpec, ...], hosts: Sequence[Host], fleet: Actual
) -> tuple[WorkerSpec, ...]:
    """Return slots with every running CPU worker: those of lower number may have gone before it."""
    able = {name for name, host in fleet.running.items() if host in fleet.capacities}
    numbers = [int(name.rpartition(":cpu")[2]) for name in able if ":cpu" in name]
    most = len(hosts) * (max(numbers, default=0) + 1)
    for count in range(len(specs) + 1, most + 1):
        if able <= {spec.name for spec in specs}:
            break
        specs = plan(hosts, fleet.capacities, count)
    return specs


def decide(fleet: Actual, demand: Desired) -> Changes:
    """Return what to start and what to stop: those that hold least stop, the rest stay."""
    available = slots(fleet, demand)
    barred = demand.held_back | fleet.leaving
    eligible = [spec for spec in available if spec.name not in barred]
    worth = {name: place for place, name in enumerate(fleet.ranked, 1)}
    chosen = _chosen(eligible, demand, fleet.running, worth)
    able = {name: host for name, host in fleet.running.items() if host in fleet.capacities}
    specs = [spec for spec in available if spec.name in chosen]
    wanted = changes(specs, [name for name in able if name not in demand.kept])
    rank = {name: place for place, name in enumerate(fleet.ranked)}
    stops = sorted(wanted.stops, key=lambda name: rank.get(name, -1))
    return Changes(
        tuple(spec for spec in wanted.starts if spec.name not in fleet.running), tuple(stops)
    )


def _chosen(
    eligible: Sequence[WorkerSpec],
    demand: Desired,
    running: Mapping[str, str],
    worth: Mapping[str, int],
) -> set[str]:
    """Return the names to run: running ones of most worth, then asked ones, then spread out."""
    on_host: Counter[str] = Counter()
    turn: dict[str, int] = {}
    runs_first = sorted(eligible, key=lambda spec: spec.name not in running)
    for spec in runs_first:
        turn[spec.name] = on_host[spec.host]
        on_host[spec.host] += 1

    def precedence(spec: WorkerSpec) -> tuple[bool, bool, int]:
        if spec.name in running:
            return (False, False, -worth.get(spec.name, 0))
        return (True, spec.name not in demand.asked, turn[spec.name])

    limits, taken, total = dict(demand.limits), Counter[str](), demand.workers
    chosen: set[str] = set()
    for spec in sorted(eligible, key=precedence):
        full = total is not None and len(chosen) >= total
        if not full and taken[spec.host] < limits.get(spec.host, len(eligible)):
            chosen.add(spec.name)
            taken[spec.host] += 1
    return chosen


def _allowed(host: Host, limit: int | None, fleet: Actual) -> Host:
    """Return the host, made to give that many CPU workers where it can."""
    found = fleet.capacities.get(host.name)
    if not limit or found is None or found.devices:
        return host
    there = sum(where == host.name for where in fleet.running.values())
    return replace(host, workers=max(limit, there))
