"""The desired workers, by number and place: each request makes a new `Desired` of the last.

`AdaptiveBounds` makes such requests by itself, as the work asks for them. `reconcile.decide` says
what a `Desired` starts and stops.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Desired:
    """The desired workers, as people asked for them."""

    workers: int | None = None
    """How many in all; None is as many as the hosts give."""
    limits: tuple[tuple[str, int], ...] = ()
    """Host → how many there at most."""
    held_back: frozenset[str] = frozenset()
    """Retired by name: not restarted automatically."""
    asked: frozenset[str] = frozenset()
    """Asked for by name: started rather than others."""
    kept: frozenset[str] = frozenset()
    """Not retired, because their results fit on no other worker."""


def scale(desired: Desired, workers: int | None) -> Desired:
    """Want this many in all, wherever they were held back before."""
    return Desired(workers, asked=desired.asked)


def scale_host(
    desired: Desired, host: str, workers: int | None, running: Mapping[str, str]
) -> Desired:
    """Want this many on one host (None: as many as it gives), and elsewhere what there is."""
    there = sum(where == host for where in running.values())
    limits = {name: limit for name, limit in desired.limits if name != host}
    if workers is None:
        return replace(desired, workers=None, limits=tuple(limits.items()))
    total = None if desired.workers is None else max(0, len(running) - there + workers)
    limits[host] = workers
    held_back = frozenset(n for n in desired.held_back if not n.startswith(f"{host}:"))
    return replace(desired, workers=total, limits=tuple(limits.items()), held_back=held_back)


def retire(desired: Desired, names: Iterable[str]) -> Desired:
    """Want these no more, and no others in their place; again is no more than once."""
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
    """Want these besides those that run; again, before they run, is no more than once."""
    names = frozenset(names) - running.keys()
    new, waiting = _by_host(names), _by_host(names & desired.asked)
    there = Counter(running.values())

    def raised(limit: int, running: int, new: int, waiting: int) -> int:
        room = max(0, limit - running)
        return max(limit, running) + new - min(waiting, room)

    workers = desired.workers
    if workers is not None:
        workers = raised(workers, len(running), new.total(), waiting.total())
    return replace(
        desired,
        workers=workers,
        limits=tuple(
            (host, raised(limit, there[host], new[host], waiting[host]) if new[host] else limit)
            for host, limit in desired.limits
        ),
        held_back=desired.held_back - names,
        asked=desired.asked | names,
    )


def _by_host(names: Iterable[str]) -> Counter[str]:
    return Counter(name.rpartition(":")[0] for name in names)


def keep(desired: Desired, names: Iterable[str]) -> Desired:
    """Leave these running for the results they hold."""
    names = frozenset(names)
    return replace(desired, kept=desired.kept | names, held_back=desired.held_back - names)


class AdaptiveBounds:
    """Grows at once and shrinks reluctantly, between bounds."""

    def __init__(self, minimum: int, maximum: int, wait_count: int = 3, every: int = 1) -> None:
        """Look at every so many counts; go down where `wait_count` looks in a row ask for fewer.

        Source: distributed's `adaptive.wait-count` (2026.8).
        """
        self.bounds = (minimum, maximum)
        self._wait_count = wait_count
        self._every = every
        self._counts = 0
        self._lower: list[int] = []

    def wanted(self, target: int, now: int) -> int:
        """Return the desired number, given the scheduler's `target` and the present number.

        >>> adaptive = AdaptiveBounds(1, 8)
        >>> [adaptive.wanted(target, 4) for target in (20, 2, 0, 2)]
        [8, 4, 4, 2]
        """
        self._counts += 1
        if (self._counts - 1) % self._every:
            return now
        minimum, maximum = self.bounds
        target = min(max(target, minimum), maximum)
        if target >= now or now > maximum:
            self._lower.clear()
            return target
        self._lower.append(target)
        if len(self._lower) < self._wait_count:
            return now
        most, self._lower = max(self._lower), []
        return most
