"""The desired workers, by number and place: each request makes a new `Desired` of the last.

`decide` compares a `Desired` with what runs: a preview on the screen and the change itself come
from it, and deciding again after its changes came about changes nothing. Pure.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from gputui.model.frozen import frozen
from gputui.model.hosts import Host
from gputui.model.plan import Changes, HostCapacity, WorkerSpec, usual_workers, workers_of


@frozen
class Desired:
    """The desired workers, as people asked for them."""

    workers: int | None = None
    """How many in all; None is as many as the hosts give."""
    held_back: frozenset[str] = frozenset()
    """Retired by name: not restarted automatically."""
    asked: frozenset[str] = frozenset()
    """Asked for by name: started rather than others."""
    kept: frozenset[str] = frozenset()
    """Not retired, because their results fit on no other worker."""


def scale(desired: Desired, workers: int | None) -> Desired:
    """Want this many in all, wherever they were held back before."""
    return Desired(workers, asked=desired.asked)


def retire(desired: Desired, names: Iterable[str]) -> Desired:
    """Want these no more, and no others in their place; asking again changes nothing."""
    names = frozenset(names)
    fewer = len(names - desired.held_back)
    workers = None if desired.workers is None else max(0, desired.workers - fewer)
    return replace(
        desired,
        workers=workers,
        held_back=desired.held_back | names,
        asked=desired.asked - names,
        kept=desired.kept - names,
    )


def add(desired: Desired, names: Iterable[str], running: Mapping[str, str]) -> Desired:
    """Want these in addition to those that run; asking again before they run adds none."""
    names = frozenset(names) - running.keys()
    new, workers = len(names - desired.asked), desired.workers
    return replace(
        desired,
        workers=None if workers is None else max(workers, len(running)) + new,
        held_back=desired.held_back - names,
        asked=desired.asked | names,
    )


def keep(desired: Desired, names: Iterable[str]) -> Desired:
    """Leave these running for the results they hold."""
    names = frozenset(names)
    return replace(desired, kept=desired.kept | names, held_back=desired.held_back - names)


@frozen
class Actual:
    """The actual state that a decision is made from."""

    hosts: tuple[Host, ...]
    capacities: Mapping[str, HostCapacity]
    """Of the hosts that can run workers now."""
    running: Mapping[str, str]
    """Worker → its host, of those that run or are being started."""
    ranked: tuple[str, ...] = ()
    """The running ones, first the one that is cheapest to give up."""
    leaving: frozenset[str] = frozenset()
    """Those on their way out, whose names are not free before they are gone."""

    def able(self) -> Iterator[tuple[Host, HostCapacity]]:
        """Yield the hosts that can run workers now, in the order of their lines."""
        for host in self.hosts:
            if (capacity := self.capacities.get(host.name)) is not None:
                yield host, capacity


def decide(actual: Actual, desired: Desired) -> Changes:
    """Decide which workers start and stop: those that hold least stop, the rest stay.

    Workers of hosts that can run none now are left alone: they may come back with their host.
    """
    quotas = host_quotas(actual, desired)
    slots = _slots(actual, quotas)
    chosen = _chosen(slots, quotas, actual, desired)
    starts = [spec for spec in slots if spec.name in chosen and spec.name not in actual.running]
    rank = {name: place for place, name in enumerate(actual.ranked)}
    stops = [
        name
        for name, host in actual.running.items()
        if host in actual.capacities and name not in chosen and name not in desired.kept
    ]
    return Changes(tuple(starts), tuple(sorted(stops, key=lambda name: rank.get(name, -1))))


def free_slots(actual: Actual) -> tuple[WorkerSpec, ...]:
    """Return every worker that could run now, desired or not."""
    return tuple(_slots(actual, host_quotas(actual, Desired())))


def host_quotas(actual: Actual, desired: Desired) -> dict[str, int]:
    """Return host → how many workers it may run, of those that can run any.

    That is what it gives. Where more are desired than all hosts give, those for CPU workers that
    have no number of their own share the rest.
    """
    quotas, elastic = dict[str, int](), list[str]()
    for host, capacity in actual.able():
        quotas[host.name] = usual_workers(host, capacity)
        if not capacity.devices and host.workers is None:
            elastic.append(host.name)
    held_back = sum(name.rpartition(":")[0] in quotas for name in desired.held_back)
    short = (desired.workers or 0) + held_back - sum(quotas.values())
    for left, name in zip(range(len(elastic), 0, -1), elastic, strict=True):
        extra = max(0, -(-short // left))
        quotas[name] += extra
        short -= extra
    return quotas


def _slots(actual: Actual, quotas: Mapping[str, int]) -> list[WorkerSpec]:
    """Return every worker that could run, each running one among them."""
    highest: dict[str, int] = {}
    for name, host in actual.running.items():
        if found := re.fullmatch(r".*:cpu([0-9]+)", name):
            highest[host] = max(highest.get(host, 0), int(found[1]) + 1)
    return [
        spec
        for host, capacity in actual.able()
        for spec in workers_of(
            host,
            capacity,
            share=usual_workers(host, capacity) if capacity.devices else quotas[host.name],
            listed=None if capacity.devices else max(quotas[host.name], highest.get(host.name, 0)),
        )
    ]


def _chosen(
    slots: Sequence[WorkerSpec], quotas: Mapping[str, int], actual: Actual, desired: Desired
) -> set[str]:
    """Return the names to run: running ones of most worth, then asked ones, then spread out."""
    unavailable = desired.held_back | actual.leaving
    worth = {name: place for place, name in enumerate(actual.ranked, 1)}
    turns: Counter[str] = Counter(actual.running.values())

    def precedence(spec: WorkerSpec) -> tuple[bool, bool, int]:
        if spec.name in actual.running:
            return (False, False, -worth.get(spec.name, 0))
        turns[spec.host] += 1
        return (True, spec.name not in desired.asked, turns[spec.host])

    eligible = [spec for spec in slots if spec.name not in unavailable]
    left = len(eligible) if desired.workers is None else desired.workers
    quota, chosen = dict(quotas), set[str]()
    for spec in sorted(eligible, key=precedence):
        if len(chosen) < left and quota[spec.host] > 0:
            chosen.add(spec.name)
            quota[spec.host] -= 1
    return chosen
