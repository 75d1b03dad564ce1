"""The last minutes and the last hour of every GPU, host and CPU worker.

A head keeps them for screens that attach, and a screen for its graphs. Everything is read at once,
each second; the mean of ten readings is kept for longer. Values are float16, NaN where nothing was
read: 12 bytes a row. It imports NumPy, so it is imported when the first reading comes.
"""

import base64
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gputui.model.series import (
    COARSE_ROWS,
    COARSE_S,
    FINE_ROWS,
    FINE_S,
    MEAN_OF,
    HistoryTaken,
    Metric,
    Row,
    Span,
)

Values = np.ndarray[Any, np.dtype[Any]]
MOST = 65_000.0
"""Larger values float16 does not hold."""


class Rows:
    """The last rows of all keys, the newest last: (kept, keys, metrics)."""

    def __init__(self, kept: int) -> None:
        self.kept = kept
        self.rows = 0
        """How many rows there are, with those from before the first that was added."""
        self.added = 0
        self.at = 0.0
        """When the newest row was added."""
        self._values = _nothing(kept, 0)

    def add(self, at: float, row: Values) -> None:
        """Add a row of all keys; the oldest goes."""
        self._values[:-1] = self._values[1:]
        self._values[-1] = row
        self.added, self.rows, self.at = self.added + 1, min(self.kept, self.rows + 1), at

    def newest(self, number: int, keys: Any, metrics: Any = slice(None)) -> Values:
        """Return the last rows of some keys and metrics, the oldest first."""
        return self._values[self.kept - number :, keys, metrics]

    def put_before(self, key: int, rows: Values) -> None:
        """Put rows of a key before those that were added, the oldest first."""
        first = max(0, self.kept - self.added)
        number = min(len(rows), first)
        self._values[first - number : first, key] = rows[len(rows) - number :]
        self.rows = max(self.rows, self.kept - first + number)

    def arrange(self, places: Sequence[int | None]) -> None:
        """Have other keys: for each its place until now, None for a new one."""
        values = _nothing(self.kept, len(places))
        known = [(there, here) for here, there in enumerate(places) if there is not None]
        if known:
            there, here = np.array(known).T
            values[:, here] = self._values[:, there]
        self._values = values


class History:
    """The last readings of every GPU by UUID, of CPU workers and hosts by name."""

    def __init__(self, fine_rows: int = FINE_ROWS, coarse_rows: int = COARSE_ROWS) -> None:
        self._fine, self._coarse = Rows(fine_rows), Rows(coarse_rows)
        self._began_at = math.inf
        self._keys: tuple[str, ...] = ()
        self._places: dict[str, int] = {}
        self._counted = 0
        """How many of the first keys the means are of."""

    def add(self, at: float, keys: tuple[str, ...], rows: Sequence[Row], counted: int = 0) -> None:
        """Take in the next reading of everything; the first `counted` keys have means."""
        if keys != self._keys:
            before, self._keys = self._places, keys
            self._places = {key: place for place, key in enumerate(keys)}
            places = [before.get(key) for key in keys]
            self._fine.arrange(places)
            self._coarse.arrange(places)
        self._counted, self._began_at = counted, min(self._began_at, at)
        values = np.array(rows, dtype=float).reshape(len(keys), len(Metric))
        self._fine.add(at, values.clip(-MOST, MOST))
        if self._fine.added % MEAN_OF == 0:
            self._coarse.add(at, mean(self._fine.newest(MEAN_OF, slice(None)), axis=0))

    def begin(self, taken: HistoryTaken) -> None:
        """Take in what a head kept of a host, but for what was read here since the first reading.

        That comes first. Of keys that are not read here nothing is kept.
        """
        raw = np.frombuffer(base64.b64decode(taken.values), "<f2")
        values = raw.reshape(taken.fine_rows + taken.coarse_rows, len(taken.keys), len(Metric))
        fine_since = math.ceil(max(0.0, taken.fine_at - self._began_at) / FINE_S)
        coarse_since = round(max(0.0, taken.coarse_at - self._began_at) / COARSE_S)
        fine = values[: max(0, taken.fine_rows - fine_since)]
        coarse = values[taken.fine_rows :][: max(0, taken.coarse_rows - coarse_since)]
        for number, key in enumerate(taken.keys):
            if key in self._places:
                self._fine.put_before(self._places[key], fine[:, number])
                self._coarse.put_before(self._places[key], coarse[:, number])

    def taken(self, host: str, keys: tuple[str, ...]) -> HistoryTaken:
        """Return all that is kept of these keys, which are a host's."""
        places = [self._places[key] for key in keys]
        kept = [ring.newest(ring.rows, places) for ring in (self._fine, self._coarse)]
        return HistoryTaken(
            host=host,
            keys=keys,
            fine_at=self._fine.at,
            fine_rows=self._fine.rows,
            coarse_at=self._coarse.at,
            coarse_rows=self._coarse.rows,
            values=base64.b64encode(np.concatenate(kept).astype("<f2").tobytes()).decode(),
        )

    def steps(self, key: str, metric: Metric, span: Span, dots: int) -> list[float | None]:
        """Return the means of a span's last whole steps of a key, for so many dots.

        A graph moves every few seconds, so that a page of them is quiet.
        """
        if (place := self._places.get(key)) is None:
            return [None] * dots
        ring, step = self._fine if span.reading_s == 1 else self._coarse, span.step(dots)
        number, late = span.steps(step), ring.added % span.moves_after(step)
        found = max(0, min(number, (ring.rows - late) // step))
        values = ring.newest(found * step + late, place, metric)[: found * step]
        means = [None] * (number - found) + _listed(mean(values.reshape(found, step), axis=1))
        return [means[dot * number // dots] for dot in range(dots)]

    def together(self, metric: Metric, begun_s: float, ended_s: float) -> list[float | None]:
        """Return the mean of all that is counted at each reading, as it is in `add`.

        From `begun_s` to `ended_s` seconds ago.
        """
        ring, every = (self._fine, 1) if begun_s < self._fine.kept else (self._coarse, MEAN_OF)
        first, last = round(begun_s / every), round(ended_s / every)
        number = min(first, ring.rows)
        values = ring.newest(number, slice(self._counted), metric)
        means = _listed(mean(values, axis=1))[: max(0, number - last)]
        return [None] * (first - max(last, number)) + means

    def minute(self, metric: Metric) -> Mapping[str, float]:
        """Return the mean of each key over the last whole minute, as far as it was read."""
        ring = self._coarse if self._coarse.rows else self._fine
        number = min(6 if ring is self._coarse else 1, ring.rows)
        means = _listed(mean(ring.newest(number, slice(None), metric), axis=0))
        return {
            key: value for key, value in zip(self._keys, means, strict=True) if value is not None
        }


def mean(values: Values, axis: int) -> Values:
    """Return the means of what was read; NaN where nothing was."""
    known = ~np.isnan(values)
    counts = known.sum(axis)
    sums = np.where(known, values, 0.0).sum(axis, dtype=float)
    return np.where(counts, sums / np.maximum(counts, 1), np.nan)


def _nothing(rows: int, keys: int) -> Values:
    return np.full((rows, keys, len(Metric)), np.nan, np.float16)


def _listed(values: Values) -> list[float | None]:
    return [None if math.isnan(value) else value for value in values.tolist()]
