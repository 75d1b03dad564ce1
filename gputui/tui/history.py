"""How busy every GPU was in the last hour: a byte a reading, so that thousands of GPUs are light.

All GPUs are read at once, so that one place in time serves them all. A graph is made of steps,
each the mean of as many readings; one is whole before it is shown, so that a graph changes now
and then, not with each reading.
"""

from collections.abc import Iterable

KEPT = 3_600
"""Readings of each GPU, a second or so apart."""
MISSING = 255
"""In place of a reading that was not there."""


class History:
    """The last readings of every GPU, in percent, by UUID."""

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._read = 0
        """How often was read."""
        self._rings: dict[str, bytearray] = {}
        self._steps: dict[tuple[str, int, int], list[float | None]] = {}

    def add(self, readings: Iterable[tuple[str, float | None]]) -> None:
        """Take in the next reading of every GPU; those that are not read any more are forgotten."""
        place, rings, before = self._read % self._kept, self._rings, self._rings
        self._rings = rings = {}
        for uuid, percent in readings:
            ring = before.get(uuid) or bytearray([MISSING]) * self._kept
            ring[place] = MISSING if percent is None else min(int(percent), 100)
            rings[uuid] = ring
        self._read += 1
        self._steps = {key: steps for key, steps in self._steps.items() if self._read % key[1]}

    def last(self, uuid: str, number: int) -> list[float | None]:
        """Return a GPU's last readings, as many as there are of so many, the newest last."""
        return self._between(uuid, self._read - number, self._read)

    def steps(self, uuid: str, readings: int, number: int) -> list[float | None]:
        """Return the means of a GPU's last so many whole steps of so many readings each."""
        key = uuid, readings, number
        steps = self._steps.get(key)
        if steps is None:
            steps = self._steps[key] = self._means(uuid, readings, number)
        return steps

    def _means(self, uuid: str, readings: int, number: int) -> list[float | None]:
        end = self._read - self._read % readings
        number = min(number, (self._kept - readings) // readings)
        values = self._between(uuid, end - readings * number, end)
        return [
            _mean(values[begin : begin + readings]) for begin in range(0, len(values), readings)
        ]

    def _between(self, uuid: str, begin: int, end: int) -> list[float | None]:
        ring = self._rings.get(uuid)
        if ring is None:
            return []
        places = range(max(0, begin, self._read - self._kept), end)
        values = [ring[place % self._kept] for place in places]
        return [None if value == MISSING else value for value in values]


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
