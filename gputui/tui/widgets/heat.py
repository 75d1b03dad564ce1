"""The whole fleet as cells: a cell per GPU, hosts labelled where there is room.

`arrange` finds the roomiest arrangement that fits; where not even single cells fit, a cell is a
host. Pure but for the widget.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message

from gputui.slots import PLACES, Slot, SlotState
from gputui.snapshot import HostState, HostStatus
from gputui.tui.rendering import format as fmt
from gputui.tui.views.fleet.host_rows import COMING_UP, STATES, glyph
from gputui.tui.widgets.pane import Line, Pane, Part, fitted, merged

OUTLIERS_WIDTH = 36
OUTLIERS_FROM = 100
"""Columns of the terminal from which there is room for the outliers."""


@dataclass(frozen=True, slots=True)
class Block:
    """A host's cells."""

    host: str
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Arrangement:
    """Where the cells are: lines of blocks, each block `width` wide after its label."""

    lines: tuple[tuple[Block, ...], ...]
    label: int
    """The width of the labels, 0 for none."""
    width: int
    by_host: bool = False
    """Whether a cell is a whole host."""


def arrange(blocks: Sequence[Block], width: int, height: int) -> Arrangement:
    """Return the roomiest arrangement of blocks that fits; the last resort may not fit.

    >>> blocks = [Block(f"n{i}", tuple("ab")) for i in range(6)]
    >>> roomy = arrange(blocks, 20, 3)
    >>> len(roomy.lines), roomy.label, roomy.width
    (2, 2, 3)
    >>> tight = arrange(blocks, 12, 1)
    >>> len(tight.lines), tight.label, tight.width
    (1, 0, 2)
    """
    cells = max((len(block.keys) for block in blocks), default=1) or 1
    label = max((len(block.host) for block in blocks), default=0)
    for label_width, block_width in ((label, cells + 1), (0, cells + 1), (0, cells)):
        each = block_width + (label_width + 1 if label_width else 0)
        per_line = max(1, width // each)
        lines = _in_lines(blocks, per_line)
        if len(lines) <= height and each <= width:
            return Arrangement(lines, label_width, block_width)
    hosts = [Block(block.host, (block.host,)) for block in blocks]
    return Arrangement(_in_lines(hosts, max(1, width)), 0, 1, by_host=True)


def _in_lines(blocks: Sequence[Block], per_line: int) -> tuple[tuple[Block, ...], ...]:
    return tuple(
        tuple(blocks[begin : begin + per_line]) for begin in range(0, len(blocks), per_line)
    )


Drawn = tuple[Sequence[Block], Callable[[str], Part], Sequence[Line]]
"""What is drawn: blocks, what each key's cell is, and the lines beside them."""


class HeatPane(Pane):
    """The cells, with a cursor that arrows and clicks move."""

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

    class Chosen(Message):
        """A cell was chosen: a slot's key, or a host's name."""

        def __init__(self, key: str) -> None:
            super().__init__()
            self.key = key

    def __init__(self) -> None:
        super().__init__()
        self._shown: Drawn = ((), lambda key: (" ", ""), ())
        self._arranged = Arrangement((), 0, 1)
        self._places: dict[str, tuple[int, int]] = {}
        self._order: list[str] = []
        self._cell: Callable[[str], Part] = lambda key: (" ", "")
        self._beside: Sequence[Line] = ()
        self._room = 0
        """Columns of the cells; what is beside them begins two further."""
        self._rows: list[Line] = []
        self.cursor: str | None = None

    def draw(
        self, blocks: Sequence[Block], cell: Callable[[str], Part], beside: Sequence[Line]
    ) -> None:
        """Show a cell for each key of the blocks, and lines beside them where there is room."""
        self._shown = (blocks, cell, beside)
        width, height = self.size
        self._room = width - OUTLIERS_WIDTH - 2 if width >= OUTLIERS_FROM else width
        self._arranged = arrange(blocks, self._room, height)
        self._cell = cell
        self._beside = beside if width >= OUTLIERS_FROM else ()
        self._order = [key for line in self._arranged.lines for block in line for key in block.keys]
        if self.cursor not in self._order:
            self.cursor = self._order[0] if self._order else None
        self._places.clear()
        lines = max(len(self._arranged.lines), len(self._beside))
        self._rows = [self._row(y) for y in range(min(height, lines))]
        self.put(self._rows)

    def on_resize(self) -> None:
        """Arrange the cells for the new size: the first one, too, which comes after a `draw`."""
        super().on_resize()
        self.draw(*self._shown)

    def _row(self, y: int) -> Line:
        """Return a line of cells and what is beside them."""
        parts = self._cells(y) if y < len(self._arranged.lines) else []
        if y < len(self._beside):
            used = sum(len(text) for text, _ in parts)
            parts += [(" " * (self._room + 2 - used), ""), *self._beside[y]]
        return parts

    def _cells(self, y: int) -> list[Part]:
        parts: list[Part] = []
        x = 0
        for block in self._arranged.lines[y]:
            if self._arranged.label:
                label = fitted(fmt.safe(block.host), self._arranged.label) + " "
                parts.append((label, "dim"))
                x += len(label)
            for offset, key in enumerate(block.keys):
                self._places[key] = (x + offset, y)
                text, role = self._cell(key)
                parts.append((text, "found" if key == self.cursor else role))
            padding = self._arranged.width - len(block.keys)
            parts.append((" " * padding, ""))
            x += self._arranged.width
        return merged(parts)

    @property
    def by_host(self) -> bool:
        """Whether a cell is a whole host."""
        return self._arranged.by_host

    def _go_to(self, key: str) -> None:
        before, self.cursor = self.cursor, key
        for each in (before, key):
            if each in self._places:
                y = self._places[each][1]
                self._rows[y] = self._row(y)
        self.put(self._rows)
        self.post_message(self.Moved(key))

    class Moved(Chosen):
        """The cursor came to another cell."""

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
            self.post_message(self.Chosen(self.cursor))

    def on_click(self, event: events.Click) -> None:
        """Move to a cell; choose it where the cursor was there."""
        for key, place in self._places.items():
            if place == (event.x, event.y):
                if key == self.cursor:
                    self.action_choose()
                else:
                    self._go_to(key)
                return


def host_glyph(host: HostStatus, slots: Sequence[Slot]) -> Part:
    """Return a whole host as one cell: the worst that holds, else how busy it is on average.

    >>> host_glyph(HostStatus("h", HostState.REFUSED, 0.0), [])
    ('✖', 'bad')
    """
    if not slots:
        mark = STATES.get(host.state, COMING_UP)
        return ("·", "dim") if host.state is HostState.READY else (mark.shape, mark.role)
    first = min(slots, key=lambda slot: PLACES[slot.state])
    if first.state is not SlotState.BUSY:
        return glyph(first)
    values = [slot.device.utilization_percent or 0.0 if slot.device else 0.0 for slot in slots]
    return (fmt.coarse_level(sum(values) / len(values) / 100), "good")
