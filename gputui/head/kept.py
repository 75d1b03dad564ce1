"""What a head keeps for frontends that attach later: the newest, within budgets in bytes.

One budget holds for all of it, and a smaller one for what comes from one host, so that a host that
reports without end pushes out its own reports, never those of others.
"""

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterator
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Kept(Generic[Item]):
    """Items, oldest first, each of a source.

    >>> kept = Kept[str](max_bytes=6, bytes_each=4)
    >>> for source, item in [("a", "12"), ("b", "3"), ("a", "45"), ("a", "6"), ("c", "7")]:
    ...     kept.add(source, len(item), item)
    >>> list(kept)
    ['3', '45', '6', '7']
    """

    def __init__(self, *, max_bytes: int, bytes_each: int) -> None:
        self._max_bytes, self._bytes_each = max_bytes, bytes_each
        self._items: OrderedDict[int, tuple[str, int, Item]] = OrderedDict()
        self._of: defaultdict[str, deque[int]] = defaultdict(deque)
        """Source → the numbers of its items."""
        self._bytes: Counter[str] = Counter()
        self._total = 0
        self._added = 0

    def __iter__(self) -> Iterator[Item]:
        return iter([item for _, _, item in self._items.values()])

    def add(self, source: str, size: int, item: Item) -> None:
        """Add an item of so many bytes, and drop the oldest that the budgets have no room for."""
        self._added += 1
        self._items[self._added] = source, size, item
        self._of[source].append(self._added)
        self._bytes[source] += size
        self._total += size
        while self._bytes[source] > self._bytes_each:
            self._drop(self._of[source][0])
        while self._total > self._max_bytes:
            self._drop(next(iter(self._items)))

    def clear(self) -> None:
        """Drop all."""
        self._items.clear()
        self._of.clear()
        self._bytes.clear()
        self._total = 0

    def _drop(self, number: int) -> None:
        source, size, _ = self._items.pop(number)
        self._of[source].popleft()
        self._total -= size
        self._bytes[source] -= size
        if not self._of[source]:
            del self._of[source], self._bytes[source]
