"""The last hour of every GPU, host and CPU worker, kept in the head for screens that attach.

Two minutes at a row a second and an hour at a row in ten, 16 bits a value (`gputui.model.series`):
7.7 kB a GPU, 32 MB at 4,096 of them. A frontend gets one `HistoryTaken` a host after it has
attached, and goes on from the snapshots by itself.
"""

import asyncio
import time
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain

from gputui.model.series import (
    COARSE_ROWS,
    COARSE_S,
    FINE_ROWS,
    FINE_S,
    METRICS,
    MISSING,
    NOTHING,
    Row,
    of_device,
    of_host,
    of_worker,
    pack,
)
from gputui.model.snapshot import HostState, HostStatus, WorkerStatus
from gputui.protocol.frontend import HistoryTaken

MEAN_OF = int(COARSE_S / FINE_S)


class RecentHistory:
    """The readings of every host, by its name."""

    def __init__(
        self,
        hosts: Callable[[], Iterable[HostStatus]],
        cpu_workers: Callable[[], Iterable[WorkerStatus]] = tuple,
    ) -> None:
        self._hosts, self._cpu_workers = hosts, cpu_workers
        self._rings: dict[str, HostRings] = {}

    async def run(self) -> None:
        """Take a row of every host each second, until cancelled."""
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            self.take(time.time())
            due = max(due + FINE_S, loop.time())
            await asyncio.sleep(due - loop.time())

    def take(self, at: float) -> None:
        """Take the next row of every host; those that are gone are forgotten."""
        before, self._rings = self._rings, {}
        on_hosts: dict[str, list[WorkerStatus]] = defaultdict(list)
        for worker in self._cpu_workers():
            on_hosts[worker.host].append(worker)
        for host in self._hosts():
            workers = on_hosts.get(host.name, ())
            devices = [device.uuid for device in host.devices]
            keys = ("", *devices, *[worker.name for worker in workers])
            rings = before.get(host.name)
            if rings is None or rings.keys != keys:
                rings = HostRings(keys, len(self._rings) % MEAN_OF, rings)
            rings.add(at, _rows(host, workers))
            self._rings[host.name] = rings

    def taken(self) -> Iterator[HistoryTaken]:
        """Yield the history, a message a host."""
        for name in tuple(self._rings):
            if (rings := self._rings.get(name)) is not None:
                yield rings.taken(name)


def _rows(host: HostStatus, workers: Sequence[WorkerStatus]) -> list[Row]:
    """Return a row of the host, each device and CPU worker; nothing while it does not answer."""
    if host.state is not HostState.READY:
        return [NOTHING] * (1 + len(host.devices) + len(workers))
    return [of_host(host.reading), *map(of_device, host.devices), *map(of_worker, workers)]


class HostRings:
    """One host, its devices and its CPU workers."""

    def __init__(self, keys: tuple[str, ...], turn: int, before: "HostRings | None" = None) -> None:
        """Begin; what `before` has of the same keys stays.

        `turn` spreads the means of thousands of hosts over the seconds.
        """
        self.keys = keys
        self._turn = turn
        self._fine = Ring(FINE_ROWS, len(keys) * len(METRICS))
        self._coarse = Ring(COARSE_ROWS, len(keys) * len(METRICS))
        if before is not None:
            columns = [
                (before.keys.index(key) * len(METRICS) + metric, place * len(METRICS) + metric)
                for place, key in enumerate(keys)
                if key in before.keys
                for metric in range(len(METRICS))
            ]
            self._fine.take_over(before._fine, columns)
            self._coarse.take_over(before._coarse, columns)

    def add(self, at: float, rows: Iterable[Row]) -> None:
        """Take the next row of all keys, and the mean of the last ones when it is due."""
        self._fine.add(at, array("H", list(chain.from_iterable(rows))))
        if self._fine.added % MEAN_OF == self._turn:
            columns = zip(*self._fine.last(MEAN_OF), strict=True)
            self._coarse.add(at, array("H", [_mean(column) for column in columns]))

    def taken(self, host: str) -> HistoryTaken:
        """Return all that is kept."""
        return HistoryTaken(
            host=host,
            keys=self.keys,
            fine_at=self._fine.at,
            fine_rows=self._fine.rows,
            coarse_at=self._coarse.at,
            coarse_rows=self._coarse.rows,
            values=pack(self._fine.ordered() + self._coarse.ordered()),
        )


class Ring:
    """The last rows of so many values each."""

    def __init__(self, kept: int, width: int) -> None:
        self.added = 0
        self.at = 0.0
        """When the newest row was added."""
        self._kept, self._width = kept, width
        self._values = array("H", [MISSING]) * (kept * width)

    @property
    def rows(self) -> int:
        """The number of rows."""
        return min(self.added, self._kept)

    def add(self, at: float, row: "array[int]") -> None:
        """Add a row in place of the oldest."""
        begin = self.added % self._kept * self._width
        self._values[begin : begin + self._width] = row
        self.added += 1
        self.at = at

    def last(self, number: int) -> list["array[int]"]:
        """Return the newest rows, as many as there are of so many."""
        places = range(max(0, self.added - min(number, self._kept)), self.added)
        begins = (place % self._kept * self._width for place in places)
        return [self._values[begin : begin + self._width] for begin in begins]

    def ordered(self) -> "array[int]":
        """Return all rows, the oldest first."""
        if self.added <= self._kept:
            return self._values[: self.added * self._width]
        begin = self.added % self._kept * self._width
        return self._values[begin:] + self._values[:begin]

    def take_over(self, other: "Ring", columns: Iterable[tuple[int, int]]) -> None:
        """Take columns of another ring of as many rows, given as (there, here)."""
        self.added, self.at = other.added, other.at
        for there, here in columns:
            self._values[here :: self._width] = other._values[there :: other._width]


def _mean(column: Sequence[int]) -> int:
    if MISSING not in column:
        return sum(column) // len(column)
    known = [value for value in column if value != MISSING]
    return sum(known) // len(known) if known else MISSING
