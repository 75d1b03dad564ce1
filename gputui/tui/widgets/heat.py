"""The whole fleet as cells: a cell per GPU with a gap between, hosts labelled where there is room.

`arrange` finds the roomiest arrangement that fits; where not even single cells fit, a cell is a
host. Pure but for the widget.
"""

from collections.abc import Callable, Sequence
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType

from gputui.model.frozen import frozen
from gputui.tui.rendering import Line, Part, fitted, whole_fields
from gputui.tui.rendering import format as fmt
from gputui.tui.widgets import Pane, Table

Block = tuple[str, Sequence[str]]
"""A host's name, and the keys of its cells."""


@frozen
class Arrangement:
    """The places of the cells: lines of blocks, each after its label, or the line after a range."""

    lines: Sequence[Sequence[Block]]
    cell: int
    """Columns that a cell is wide."""
    gap: int
    """Columns between two cells of a host; between hosts one more."""
    label: int
    """The width of the label of each block, 0 for none."""
    range: int
    """The width of the label of each line, 0 for none."""
    block: int
    """Columns of a block, with its label and the space after it."""


SHAPES = (
    (3, 1, True, False, False),
    (2, 1, True, False, False),
    (1, 1, True, False, False),
    (2, 1, False, True, False),
    (1, 1, False, True, False),
    (1, 0, False, True, False),
    (2, 1, False, True, True),
    (1, 1, False, True, True),
    (1, 1, False, False, True),
    (1, 0, False, False, True),
)
"""Cell, gap, whether each host or each line has a label, and whether a cell is a host: from the
roomiest arrangement to the tightest."""


def arrange(blocks: Sequence[Block], width: int, height: int) -> Arrangement:
    """Return the roomiest arrangement of blocks that fits; the last resort may not fit.

    >>> blocks = [(f"n{i}", "ab") for i in range(6)]
    >>> roomy = arrange(blocks, 24, 2)
    >>> len(roomy.lines), roomy.cell, roomy.gap, roomy.label
    (2, 1, 1, 2)
    >>> tight = arrange(blocks, 12, 1)
    >>> len(tight.lines), tight.lines[0][0]
    (1, ('n0', ['n0']))
    """
    longest = min(20, max((len(name) for name, _ in blocks), default=0))
    for cell, gap, labelled, ranged, by_host in SHAPES:
        shown = [(name, [name]) for name, _ in blocks] if by_host else blocks
        label, range_ = longest * labelled, (longest + 5) * ranged
        cells = max((len(keys) for _, keys in shown), default=1)
        block = label + labelled + cells * (cell + gap) + (not by_host)
        per_line = (width - range_ - ranged + 1) // block
        lines = [shown[at : at + per_line] for at in range(0, len(shown), per_line or 1)]
        if per_line > 0 and len(lines) <= height:
            break
    return Arrangement(lines, cell, gap, label, range_, block)


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
        self._blocks: Sequence[Block] = ()
        self._part: Callable[[str], Part] = lambda key: (" ", "")
        self._legend: Line = ()
        self._arranged = arrange((), 1, 1)
        self._places: dict[str, tuple[int, int]] = {}
        """The column and the line of each cell in sight."""
        self._order: list[str] = []
        self.cursor: str | None = None

    def show(self, blocks: Sequence[Block], part: Callable[[str], Part], legend: Line) -> None:
        """Show a cell for each key of the blocks."""
        self._blocks, self._part, self._legend = blocks, part, legend
        width, height = self.size
        arranged = self._arranged = arrange(blocks, width, height - 1)
        self._order = [key for line in arranged.lines for _, keys in line for key in keys]
        if self.cursor not in self._order:
            self.cursor = next(iter(self._order), None)
        seen = arranged.lines[: max(0, height - 1)]
        before = (
            arranged.range + arranged.label + bool(arranged.range or arranged.label or arranged.gap)
        )
        self._places = {
            key: (before + block * arranged.block + cell * (arranged.cell + arranged.gap), y)
            for y, line in enumerate(seen)
            for block, (_, keys) in enumerate(line)
            for cell, key in enumerate(keys)
        }
        self.put([*map(self._row, seen), whole_fields(legend, width)])

    def on_resize(self) -> None:
        """Arrange the cells for the new size: the first one, too, which comes after a `show`."""
        self.show(self._blocks, self._part, self._legend)

    def _row(self, line: Sequence[Block]) -> Line:
        """Return a line of cells, the one under the cursor in brackets."""
        arranged = self._arranged
        parts: list[Part] = []
        if arranged.range:
            parts.append((range_label(line, arranged.range) + " ", "dim"))
        elif arranged.gap and not arranged.label:
            parts.append((" ", ""))
        for name, keys in line:
            left = arranged.block - len(keys) * (arranged.cell + arranged.gap)
            if arranged.label:
                parts.append((fitted(fmt.safe(name), arranged.label) + " ", "dim"))
                left -= arranged.label + 1
            for key in keys:
                framed = key == self.cursor and arranged.gap > 0
                if framed:
                    before, role = parts.pop()
                    parts += [(before[:-1], role), ("[", "key")]
                parts += [self._cell(key), ("]", "key") if framed else (" " * arranged.gap, "")]
            if left:
                parts.append((" " * left, ""))
        return parts

    def _cell(self, key: str) -> Part:
        """Return a cell: a mark stands in it once, a colour fills it.

        Where there is no gap for brackets, the cell under the cursor is a cross.
        """
        arranged = self._arranged
        if key == self.cursor and not arranged.gap:
            return ("+", "key")
        char, role = self._part(key)
        filled = role.startswith("heat")
        return (char * arranged.cell if filled else char.ljust(arranged.cell), role)

    def _go_to(self, key: str) -> None:
        """Move the cursor, and draw again the lines that it left and came to."""
        lines, before, self.cursor = [*self.lines], self.cursor, key
        for moved in (before, key):
            if moved in self._places:
                y = self._places[moved][1]
                lines[y] = self._row(self._arranged.lines[y])
        self.put(lines)
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
        places = self._places.items()
        there = [(abs(column - x), key) for key, (column, line) in places if line == y + lines]
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
                self.select(key)
                return
