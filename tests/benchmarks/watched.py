"""A command in a terminal that interprets what it gets, so that what is seen can be waited for."""

import re
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import pyte

from tests.benchmarks.ptys import Counted

KEY_LINES = 3
FRAMED = re.compile(r"\[|(?<=\S)\+|\+(?=\S)")
"""The cursor of the heat map: brackets, or a cross without blanks around it."""


@dataclass
class Watched(Counted):
    """A command whose screen is read."""

    screen: pyte.Screen = field(init=False)

    def __post_init__(self) -> None:
        self.screen = pyte.Screen(*self.cells)
        self._stream = pyte.ByteStream(self.screen)

    def see(self, fresh: bytes) -> None:
        """Show what arrived."""
        self._stream.feed(fresh)

    def until(self, holds: Callable[[], object], seconds: float = 30.0) -> float:
        """Take in what arrives until a condition holds; return when that came."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            at = self.take(left)
            if at is not None and holds():
                return at
        raise TimeoutError("\n".join(self.screen.display))

    def shows(self, *texts: str) -> bool:
        """Return whether all these texts are seen."""
        seen = "\n".join(self.screen.display)
        return all(text in seen for text in texts)

    def cursor(self) -> tuple[int, int]:
        """Return the line and column of the cursor.

        It is in reverse, on its own paper, in brackets, or a cross among other cells. The lines of
        keys, where the view's name is, and the last column, a scrollbar's, are let be.
        """
        columns, lines = self.cells
        places = [(y, x) for y in range(lines - KEY_LINES) for x in range(columns - 1)]
        cells = {place: self.screen.buffer[place[0]][place[1]] for place in places}
        (paper, _), *_ = Counter(cell.bg for cell in cells.values()).most_common(1)
        marked = [place for place, cell in cells.items() if cell.reverse or cell.bg != paper]
        rows = self.screen.display[: lines - KEY_LINES]
        framed = [
            (y, found.start()) for y, row in enumerate(rows) for found in FRAMED.finditer(row)
        ]
        return next(iter(marked or framed), (0, 0))
