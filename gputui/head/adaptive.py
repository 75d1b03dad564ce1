"""The number of workers following the work: what the scheduler asks for → how many are wanted."""

STEADY = 3
"""Counts in a row that must ask for fewer before any worker goes. Source: distributed's
`adaptive.wait-count` (2026.8)."""


class Adaptive:
    """Grows at once and shrinks reluctantly, between bounds."""

    def __init__(self, minimum: int, maximum: int) -> None:
        self.bounds = (minimum, maximum)
        self._lower: list[int] = []

    def wanted(self, target: int, now: int) -> int:
        """Return how many are wanted, where the scheduler asks for `target` and `now` are wanted.

        >>> adaptive = Adaptive(1, 8)
        >>> [adaptive.wanted(target, 4) for target in (20, 2, 0, 2)]
        [8, 4, 4, 2]
        """
        minimum, maximum = self.bounds
        target = min(max(target, minimum), maximum)
        if target >= now or now > maximum:
            self._lower.clear()
            return target
        self._lower.append(target)
        if len(self._lower) < STEADY:
            return now
        most, self._lower = max(self._lower), []
        return most
