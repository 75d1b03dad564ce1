"""The last hour of every GPU: four minutes by the second, the hour by ten seconds.

Likewise every CPU worker, by its name, and the hosts of those, by theirs. All are read at once, so
a frame holds one reading of each of them, 16 bits a value (`gputui.model.series`); what was before
the first frame is what the head kept. A graph is made of steps, each the mean of as many readings;
one is whole before it is shown, so that a graph moves on by whole cells and is still between.
"""

import math
from array import array
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum
from itertools import chain
from typing import TYPE_CHECKING

from gputui.model.readings import DeviceReading
from gputui.model.series import (
    COARSE_S,
    FINE_S,
    METRICS,
    MISSING,
    SCALES,
    Row,
    of_device,
    of_host,
    of_worker,
    unpack,
)
from gputui.model.series import values as unpacked
from gputui.model.snapshot import HostStatus, WorkerStatus

if TYPE_CHECKING:
    from gputui.protocol.frontend import HistoryTaken

FINE_KEPT = 240
"""Readings kept second by second: the two minutes of a graph, and as much for a wide one."""
COARSE_READINGS = int(COARSE_S / FINE_S)
"""Fine readings in a coarse one."""
COARSE_KEPT = 480
"""Coarse readings kept: the hour of a graph, and a third more for steps that are not whole."""
MOVES_EVERY_S = 2
"""The least time between two moves of a graph."""
CACHED = 4_000
"""Graphs that are kept until their next step."""


class Metric(IntEnum):
    """The metrics kept, in the order of `series.METRICS`: a host's utilisation is its CPUs'."""

    UTILIZATION = 0
    MEMORY = 1
    POWER = 2
    TEMPERATURE = 3
    TASKS = 2
    """Another name of POWER: the column in which a CPU worker's row has its tasks."""
    NETWORK = 2
    """Another name of POWER: the column in which a host's row has its network, in MB/s."""


class Span(Enum):
    """A graph's span: at least so many readings, and the seconds between them."""

    MINUTES_2 = ("2 min", 120, 1)
    MINUTES_10 = ("10 min", 60, COARSE_READINGS)
    HOUR = ("1 h", 360, COARSE_READINGS)

    def __init__(self, title: str, readings: int, reading_s: int) -> None:
        self.title, self.readings, self.reading_s = title, readings, reading_s

    @property
    def seconds(self) -> int:
        """Its length at least."""
        return self.readings * self.reading_s

    def step(self, dots: int) -> int:
        """Return how many readings go into one of so many dots.

        >>> Span.MINUTES_2.step(74), Span.HOUR.step(100), Span.MINUTES_2.step(500)
        (2, 4, 1)
        """
        return max(1, math.ceil(self.readings / max(1, dots)))

    @property
    def next(self) -> "Span":
        """The span after this one, the first after the last."""
        spans = list(Span)
        return spans[(spans.index(self) + 1) % len(spans)]


@dataclass(frozen=True, slots=True)
class Frame:
    """One reading of everything."""

    places: Mapping[str, int]
    """UUID or name → its place in each of the columns."""
    columns: tuple["array[int]", ...]
    """The values of each metric."""
    counted: int
    """How many of the first places the means are of: all GPUs, else all CPU workers."""
    means: tuple[int, ...]
    """By metric."""

    @classmethod
    def of(
        cls, places: Mapping[str, int], columns: tuple["array[int]", ...], counted: int
    ) -> "Frame":
        """Return the frame of these readings."""
        means = tuple(_packed_mean(column[:counted]) for column in columns)
        return cls(places, columns, counted, means)

    def value(self, key: str, metric: "Metric") -> int:
        """Return the reading of a UUID or name, packed."""
        place = self.places.get(key)
        return MISSING if place is None else self.columns[metric][place]


class History:
    """The last readings of every GPU by UUID, of CPU workers and their hosts by name."""

    def __init__(self) -> None:
        self._fine: deque[Frame] = deque(maxlen=FINE_KEPT)
        self._coarse: deque[Frame] = deque(maxlen=COARSE_KEPT)
        self._read = 0
        """The number of readings added."""
        self._began_at = math.inf
        self._keys: tuple[str, ...] = ()
        self._places: Mapping[str, int] = {}
        self._past: dict[str, tuple[Sequence[array[int]], Sequence[array[int]]]] = {}
        """What the head kept from before the first frame: fine and coarse, by metric."""
        self._unopened: dict[str, HistoryTaken] = {}
        """The same as it came, until somebody wants to see it."""
        self._graphs: dict[tuple[str, Metric, Span, int], tuple[int, list[float | None]]] = {}

    def begin(self, taken: "HistoryTaken") -> None:
        """Take in what the head kept of a host."""
        self._unopened |= dict.fromkeys((key or taken.host for key in taken.keys), taken)
        self._graphs.clear()

    def _open(self, taken: "HistoryTaken") -> None:
        """Unpack what the head kept of a host."""
        raw, width = unpack(taken.values), len(taken.keys) * len(METRICS)
        fine_since = math.ceil(max(0.0, taken.fine_at - self._began_at) / FINE_S)
        coarse_since = round(max(0.0, taken.coarse_at - self._began_at) / COARSE_S)
        fine, coarse = raw[: taken.fine_rows * width], raw[taken.fine_rows * width :]
        fine = fine[: max(0, taken.fine_rows - fine_since) * width]
        coarse = coarse[: max(0, taken.coarse_rows - coarse_since) * width]
        for place, key in enumerate(taken.keys):
            begins = range(place * len(METRICS), (place + 1) * len(METRICS))
            self._unopened.pop(key or taken.host, None)
            self._past[key or taken.host] = (
                [fine[begin::width] for begin in begins],
                [coarse[begin::width] for begin in begins],
            )

    def add(
        self,
        devices: Sequence[DeviceReading],
        cpu_workers: Sequence[WorkerStatus] = (),
        hosts: Sequence[HostStatus] = (),
        at: float = 0.0,
    ) -> None:
        """Take in the next reading of every GPU, every CPU worker, and the hosts of those.

        `at` is when that was by the head's clock: what it kept since the first is left out.
        """
        if not self._read:
            self._began_at = at
        keys = (
            *(device.uuid for device in devices),
            *(worker.name for worker in cpu_workers),
            *(host.name for host in hosts),
        )
        if keys != self._keys:
            self._keys = keys
            self._places = {key: place for place, key in enumerate(keys)}
        rows = chain(
            map(of_device, devices),
            map(of_worker, cpu_workers),
            (of_host(host.reading) for host in hosts),
        )
        counted = len(devices) or len(cpu_workers)
        self._fine.append(Frame.of(self._places, columns(rows), counted))
        self._read += 1
        if self._read % COARSE_READINGS == 0:
            self._coarse.append(mean_frame(list(self._fine)[-COARSE_READINGS:]))

    def steps(self, key: str, metric: Metric, span: Span, dots: int) -> list[float | None]:
        """Return the means of a span's last whole steps of a UUID or name, for so many dots.

        A graph moves every few seconds, so that a page of them is quiet.
        """
        fine = span.reading_s == 1
        step = span.step(dots)
        period = step * math.ceil(MOVES_EVERY_S / (step * span.reading_s))
        moves, late = divmod(self._read if fine else self._read // COARSE_READINGS, period)
        asked = key, metric, span, dots
        known, graph = self._graphs.get(asked, (None, []))
        if known == moves:
            return graph
        values, number = self._values(key, metric, fine), math.ceil(span.readings / step)
        means = _means(values[: len(values) - late], step, number)
        means[:0] = [None] * (number - len(means))
        graph = [means[dot * number // dots] for dot in range(dots)]
        if len(self._graphs) > CACHED:
            self._graphs.clear()
        self._graphs[asked] = moves, graph
        return graph

    def together(self, metric: Metric, begun_s: float, ended_s: float) -> list[float | None]:
        """Return the mean of all GPUs, or of all CPU workers without a GPU, at each reading.

        From `begun_s` to `ended_s` seconds ago.
        """
        fine = begun_s < FINE_KEPT
        every = 1 if fine else COARSE_READINGS
        frames, kept = (self._fine, FINE_KEPT) if fine else (self._coarse, COARSE_KEPT)
        raw = array("H", [frame.means[metric] for frame in frames])
        first, last = round(begun_s / every), round(ended_s / every)
        if first > len(raw) and len(raw) < kept:
            for taken in {taken.host: taken for taken in self._unopened.values()}.values():
                self._open(taken)
            counted = self._keys[: self._fine[-1].counted] if self._fine else ()
            kept_of = [self._past[key] for key in counted if key in self._past]
            past = [of[0 if fine else 1][metric] for of in kept_of]
            longest = max(map(len, past), default=0)
            whole = mean_columns(each for each in past if len(each) == longest)
            raw = whole[-(kept - len(raw)) :] + raw
        found = unpacked(raw, metric)
        missing: list[float | None] = [None] * max(0, first - max(last, len(found)))
        return [*missing, *found[max(0, len(found) - first) : max(0, len(found) - last)]]

    def minute(self, metric: Metric) -> Mapping[str, float]:
        """Return the mean of each over the last whole minute, as far as it was read."""
        frames = list(self._coarse)[-6:] or list(self._fine)[-1:]
        if not frames:
            return {}
        last = frames[-1]
        means = mean_columns([_columns_like(last, frame)[metric] for frame in frames])
        return {
            key: value / SCALES[metric]
            for key, value in zip(last.places, means, strict=True)
            if value != MISSING
        }

    def _values(self, key: str, metric: Metric, fine: bool) -> list[float | None]:
        frames, kept = (self._fine, FINE_KEPT) if fine else (self._coarse, COARSE_KEPT)
        raw = array("H")
        if (taken := self._unopened.get(key)) is not None:
            self._open(taken)
        if (room := kept - len(frames)) and key in self._past:
            raw = self._past[key][0 if fine else 1][metric][-room:]
        raw.extend(frame.value(key, metric) for frame in frames)
        return unpacked(raw, metric)


def columns(rows: Iterable[Row]) -> tuple["array[int]", ...]:
    """Return rows as an array for each metric."""
    found = tuple(array("H", column) for column in zip(*rows, strict=True))
    return found or tuple(array("H") for _ in METRICS)


def mean_frame(frames: Sequence[Frame]) -> Frame:
    """Return the mean of some frames, of what the last one has."""
    last = frames[-1]
    metrics = zip(*(_columns_like(last, frame) for frame in frames), strict=True)
    return Frame.of(last.places, tuple(mean_columns(metric) for metric in metrics), last.counted)


def mean_columns(columns: Iterable["array[int]"]) -> "array[int]":
    """Return the means of values at the same places."""
    return array("H", [_packed_mean(values) for values in zip(*columns, strict=True)])


def _packed_mean(values: Sequence[int]) -> int:
    if MISSING in values:
        values = tuple(value for value in values if value != MISSING)
    return sum(values) // len(values) if values else MISSING


def _columns_like(other: Frame, frame: Frame) -> tuple["array[int]", ...]:
    """Return a frame's columns with the values at the places of another."""
    if frame.places is other.places:
        return frame.columns
    found = [frame.places.get(key) for key in other.places]
    return tuple(
        array("H", [MISSING if place is None else column[place] for place in found])
        for column in frame.columns
    )


def _means(values: Sequence[float | None], step: int, number: int) -> list[float | None]:
    """Return the means of the last so many whole steps."""
    number = min(number, len(values) // step)
    begin = len(values) - number * step
    if step == 1:
        return list(values[begin:])
    return [_mean(values[at : at + step]) for at in range(begin, len(values), step)]


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
