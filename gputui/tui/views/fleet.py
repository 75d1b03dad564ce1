"""The fleet: every GPU with the worker on it, hosts grouped, at the zoom that fits."""

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult

from gputui.snapshot import HostStatus
from gputui.tui import format as fmt
from gputui.tui.columns import COLUMNS, HISTORY_CELLS, Column, fitting
from gputui.tui.commands import Command
from gputui.tui.pane import Line, Part, fitted
from gputui.tui.slots import Slot, slots_of
from gputui.tui.table import Table
from gputui.tui.view import View
from gputui.tui.watched import Watched

NAME_MOST = 24
HISTORY_FROM = 108
"""Columns of the terminal from which there is room for a history."""


class FleetView(View):
    """Rows of GPUs under their hosts."""

    NAME = "fleet"
    COMMANDS: ClassVar[tuple[Command, ...]] = ()

    def __init__(self) -> None:
        super().__init__()
        self._table = Table()
        self._slots: dict[str, Slot] = {}
        self._hosts: dict[str, HostStatus] = {}
        self._columns: tuple[Column, ...] = ()
        self._name_width = 0

    def compose(self) -> ComposeResult:
        """Lay out the table."""
        yield self._table

    def show(self, watched: Watched) -> None:
        """Draw the newest snapshot."""
        snapshot = watched.snapshot
        if snapshot is None:
            return
        self._slots = {slot.key: slot for slot in slots_of(snapshot)}
        self._hosts = {host.name: host for host in snapshot.hosts}
        self._name_width = min(NAME_MOST, max(map(len, self._slots), default=8))
        self._columns = fitting(COLUMNS, self._room())
        self._table.show(self._heading(), self._keys(), self._row)

    def _room(self) -> int:
        width = self._table.scrollable_content_region.width
        history = HISTORY_CELLS + 1 if width >= HISTORY_FROM else 0
        return width - self._name_width - 1 - history

    def _keys(self) -> Sequence[str]:
        keys: list[str] = []
        slots = list(self._slots.values())
        position = 0
        for host in self._hosts:
            keys.append(host)
            while position < len(slots) and slots[position].host.name == host:
                keys.append(slots[position].key)
                position += 1
        return keys

    def _heading(self) -> Line:
        titles = [column.heading() for column in self._columns]
        return ((" ".join([" " + fitted("GPU", self._name_width), *titles]), "title"),)

    def _row(self, key: str) -> Line:
        slot = self._slots.get(key)
        return self._slot_row(slot) if slot else self._host_row(self._hosts[key])

    def _slot_row(self, slot: Slot) -> Line:
        parts: list[Part] = [(" " + fitted(fmt.safe(slot.key), self._name_width), "")]
        for column in self._columns:
            parts += [(" ", ""), column.cell(slot)]
        return [(text, "dim") for text, _ in parts] if slot.dead else parts

    def _host_row(self, host: HostStatus) -> Line:
        reading = host.reading
        return (
            (fitted(fmt.safe(host.name), self._name_width), "title"),
            (f"  {host.state.value}  cpu {fmt.number(reading.cpu_percent)}%", "dim"),
        )

    def crumbs(self) -> Line:
        """Return how many there are."""
        return ((f"{len(self._slots)} GPUs on {len(self._hosts)} hosts", "dim"),)

    def go_to(self, key: str) -> None:
        """Put the cursor on a slot or a host."""
        self._table.select(key)

    def focus_body(self) -> None:
        """Put the focus on the table."""
        self._table.focus()
