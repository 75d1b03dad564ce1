"""The number of workers following the work: what the scheduler asks for → how many are wanted."""


class Adaptive:
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
        """Return how many are wanted, where the scheduler asks for `target` and `now` are wanted.

        >>> adaptive = Adaptive(1, 8)
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
