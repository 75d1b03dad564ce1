"""The whole fleet as cells: a cell per GPU with a gap between, hosts labelled where there is room.

`arrange` finds the roomiest arrangement that fits; where not even single cells fit, a cell is a
host. Pure but for the widget.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType

from gputui.tui.rendering import format as fmt
from gputui.tui.rendering.lines import Line, Part, fitted, merged, whole_fields
from gputui.tui.widgets.pane import Pane
from gputui.tui.widgets.table import Table

Block = tuple[str, Sequence[str]]
"""A host's name, and the keys of its cells."""


@dataclass(frozen=True, slots=True)
class Arrangement:
    """The places of the cells: lines of blocks, each after its label, or the line after a range."""

    lines: tuple[tuple[Block, ...], ...]
    cell: int
    """Columns that a cell is wide."""
    gap: int
    """Columns between two cells of a host; between hosts one more."""
    label: int = 0
    """The width of the label of each block, 0 for none."""
    range: int = 0
    """The width of the label of each line, 0 for none."""
    by_host: bool = False
    """Whether a cell is a whole host."""

    def block_width(self, cells: int) -> int:
        """Return the columns of a block, with its label and the space after it."""
        label = self.label + 1 if self.label else 0
        return label + cells * (self.cell + self.gap) + (1 if not self.by_host else 0)


ROOMY = ((3, 1, True), (2, 1, True), (1, 1, True), (2, 1, False), (1, 1, False), (1, 0, False))
"""Cell, gap, and whether each host has a label: from the roomiest arrangement to the tightest."""


def arrange(blocks: Sequence[Block], width: int, height: int) -> Arrangement:
    """Return the roomiest arrangement of blocks that fits; the last resort may not fit.

    >>> blocks = [(f"n{i}", "ab") for i in range(6)]
    >>> roomy = arrange(blocks, 24, 2)
    >>> len(roomy.lines), roomy.cell, roomy.gap, roomy.label
    (2, 1, 1, 2)
    >>> tight = arrange(blocks, 12, 1)
    >>> len(tight.lines), tight.by_host
    (1, True)
    """
    label = min(20, max((len(name) for name, _ in blocks), default=0))
    hosts = [(name, [name]) for name, _ in blocks]
    ranges = label + 5
    for arrangement in (
        *(
            Arrangement((), cell, gap, label * labelled, ranges * (not labelled))
            for cell, gap, labelled in ROOMY
        ),
        Arrangement((), 2, 1, range=ranges, by_host=True),
        Arrangement((), 1, 1, range=ranges, by_host=True),
        Arrangement((), 1, 1, by_host=True),
    ):
        found = _in_lines(arrangement, hosts if arrangement.by_host else blocks, width)
        if found.lines and len(found.lines) <= height:
            return found
    return _in_lines(Arrangement((), 1, 0, by_host=True), hosts, max(1, width))


def _in_lines(arrangement: Arrangement, blocks: Sequence[Block], width: int) -> Arrangement:
    """Return an arrangement with its lines; without any where not one block fits into the width."""
    cells = max((len(keys) for _, keys in blocks), default=1) or 1
    room = width - (arrangement.range + 1 if arrangement.range else 0)
    per_line = (room + 1) // arrangement.block_width(cells)
    begins = range(0, len(blocks), per_line) if per_line > 0 else ()
    return replace(arrangement, lines=tuple(tuple(blocks[b : b + per_line]) for b in begins))


def range_label(blocks: Sequence[Block], width: int) -> str:
    """Return the label before a line of several hosts.

    >>> range_label([(f"node-{number:03}", ()) for number in (1, 2, 14)], 14)
    'node-001–014  '
    """
    first, last = blocks[0][0], blocks[-1][0]
    if first == last:
        return fitted(fmt.safe(first), width)
    common = next((at for at in range(len(last)) if first[: at + 1] != last[: at + 1]), 0)
    common = len(last[:common].rstrip("0123456789"))
    return fitted(fmt.safe(f"{first}–{last[common:]}"), width)


Drawn = tuple[Sequence[Block], Callable[[str], Part], Line]
"""The drawn blocks, the cell of each key, and the legend."""


class HeatPane(Pane, can_focus=True):
    """The cells, with a cursor that arrows and clicks move, over a legend; a table's messages."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left,h", "move(-1)", show=False),
        Binding("right,l", "move(1)", show=False),
        Binding("up,k", "line(-1)", show=False),
        Binding("down,j", "line(1)", show=False),
        Binding("home,g", "end(False)", show=False),
        Binding("end,G", "end(True)", show=False),
        Binding("enter", "choose", show=False),
    ]
    DEFAULT_CSS = "HeatPane { height: 1fr; width: 1fr; }"

    def __init__(self) -> None:
        super().__init__()
        self._shown: Drawn = ((), lambda key: (" ", ""), ())
        self._arranged = Arrangement((), 1, 1)
        self._places: dict[str, tuple[int, int]] = {}
        self._order: list[str] = []
        self._rows: list[Line] = []
        self.cursor: str | None = None

    def draw(self, blocks: Sequence[Block], cell: Callable[[str], Part], legend: Line) -> None:
        """Show a cell for each key of the blocks."""
        self._shown = (blocks, cell, legend)
        width, height = self.size
        self._arranged = arrange(blocks, width, height - 1)
        self._order = [key for line in self._arranged.lines for _, keys in line for key in keys]
        if self.cursor not in self._order:
            self.cursor = self._order[0] if self._order else None
        self._places.clear()
        lines = len(self._arranged.lines)
        self._rows = [
            *(self._row(y) for y in range(min(height - 1, lines))),
            whole_fields(legend, width),
        ]
        self.put(self._rows)

    def lines_wanted(self, blocks: Sequence[Block], width: int, height: int) -> int:
        """Return how many lines the cells and the legend take."""
        return min(height, len(arrange(blocks, width, height - 1).lines) + 1)

    def on_resize(self) -> None:
        """Arrange the cells for the new size: the first one, too, which comes after a `draw`."""
        super().on_resize()
        self.draw(*self._shown)

    def _row(self, y: int) -> Line:
        """Return a line of cells, the one under the cursor in brackets."""
        arranged, line = self._arranged, self._arranged.lines[y]
        parts: list[Part] = []
        x = 0
        if arranged.range:
            parts.append((range_label(line, arranged.range) + " ", "dim"))
            x += arranged.range + 1
        elif arranged.gap and not arranged.label:
            parts, x = [(" ", "")], 1
        most = max((len(keys) for blocks in arranged.lines[:1] for _, keys in blocks), default=1)
        for name, keys in line:
            begin = x
            if arranged.label:
                label = fitted(fmt.safe(name), arranged.label) + " "
                parts.append((label, "dim"))
                x += len(label)
            for key in keys:
                self._places[key] = (x, y)
                framed = key == self.cursor and arranged.gap > 0
                if framed:
                    before, role = parts.pop()
                    parts += [(before[:-1], role), ("[", "key")]
                parts.append(self._cell(key))
                parts.append(("]", "key") if framed else (" " * arranged.gap, ""))
                x += arranged.cell + arranged.gap
            padding = begin + arranged.block_width(most) - x
            parts.append((" " * padding, ""))
            x += padding
        return merged(parts)

    def _cell(self, key: str) -> Part:
        """Return a cell: a mark stands in it once, a colour fills it.

        Where there is no gap for brackets, the cell under the cursor is a cross.
        """
        arranged = self._arranged
        if key == self.cursor and not arranged.gap:
            return ("+", "key")
        char, role = self._shown[1](key)
        filled = role.startswith("heat")
        return (char * arranged.cell if filled else char.ljust(arranged.cell), role)

    def _go_to(self, key: str) -> None:
        before, self.cursor = self.cursor, key
        for each in (before, key):
            if each in self._places:
                y = self._places[each][1]
                self._rows[y] = self._row(y)
        self.put(self._rows)
        self.post_message(Table.Moved(key))

    def action_move(self, cells: int) -> None:
        """Move along the hosts."""
        if self.cursor is not None:
            place = self._order.index(self.cursor) + cells
            self._go_to(self._order[max(0, min(place, len(self._order) - 1))])

    def action_line(self, lines: int) -> None:
        """Move to the nearest cell of another line."""
        if self.cursor not in self._places:
            return
        x, y = self._places[self.cursor]
        there = [
            (abs(place[0] - x), key) for key, place in self._places.items() if place[1] == y + lines
        ]
        if there:
            self._go_to(min(there)[1])

    def action_end(self, last: bool) -> None:
        """Move to the first or the last cell."""
        if self._order:
            self._go_to(self._order[-1 if last else 0])

    def action_choose(self) -> None:
        """Choose the cell under the cursor."""
        if self.cursor is not None:
            self.post_message(Table.Chosen(self.cursor))

    def select(self, key: str) -> None:
        """Put the cursor on a cell, where there is such a one."""
        if key in self._places and key != self.cursor:
            self._go_to(key)

    def on_click(self, event: events.Click) -> None:
        """Move to a cell; choose it where the cursor was there."""
        for key, (x, y) in self._places.items():
            if y == event.y and x <= event.x < x + self._arranged.cell:
                if key == self.cursor:
                    self.action_choose()
                else:
                    self._go_to(key)
                return
