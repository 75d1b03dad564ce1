"""The fleet at three zooms: a row per GPU under its host, a row per host, a cell per GPU.

The zoom that fits is chosen by itself until a person chooses one. Order, filter, marks, folded
hosts and columns hold for all that is shown.
"""

from collections.abc import Iterable

from textual.app import ComposeResult

from gputui.errors import HeadError
from gputui.tui.commands.fleet import FLEET_COMMANDS
from gputui.tui.dialogs.picker import Picker
from gputui.tui.filter import FilterError
from gputui.tui.rendering.rows import column_at
from gputui.tui.views.fleet.gpu_columns import BY_KEY, COLUMNS, DOES, Column
from gputui.tui.views.fleet.gpu_rows import NAME_MOST, GpuRows
from gputui.tui.views.fleet.host_columns import HOST_COLUMNS, HostColumn, keys_of
from gputui.tui.views.fleet.host_rows import HostLayout, glyph, host_row
from gputui.tui.views.fleet.outliers import Outliers
from gputui.tui.views.fleet.selection import Selection, Zoom
from gputui.tui.views.fleet.slot_fields import SLOT_FIELDS
from gputui.tui.views.view import View
from gputui.tui.watched import Watched
from gputui.tui.widgets.device_panel import DevicePanel
from gputui.tui.widgets.heat import Block, HeatPane, host_glyph
from gputui.tui.widgets.pane import Line, Part
from gputui.tui.widgets.table import Table

OUTLIERS_HOLD_S = 5.0
"""How long the list of what stands out stays as it is, so that it can be read."""
LINES_AROUND = 4
"""Lines of the terminal that are no rows: status, heading, crumbs, keys."""
RAIL_CELLS = 68
"""Columns that the GPU under the cursor takes beside the rows, where the terminal is wide."""
RAIL_FROM = 190


class FleetView(View):
    """Every GPU of the cluster."""

    NAME = "fleet"
    COMMANDS = FLEET_COMMANDS
    FILTER = SLOT_FIELDS
    DEFAULT_CSS = f"""
    FleetView {{ layout: horizontal; }}
    FleetView HeatPane {{ display: none; }}
    FleetView #rail {{ display: none; width: {RAIL_CELLS}; border-left: solid $panel; }}
    """

    def __init__(self) -> None:
        super().__init__()
        self.table, self.heat, self.rail = Table(), HeatPane(), DevicePanel(id="rail")
        self.rail.processes.can_focus = False
        self.selection = Selection()
        self.chosen_zoom: Zoom | None = None
        self.columns: tuple[Column, ...] = COLUMNS
        self._fitting: tuple[Column, ...] = ()
        self._host_columns: tuple[HostColumn, ...] = ()
        self._headings: tuple[tuple[str, int], ...] = ()
        """The orders that a click on the heading means, and the cells of each."""
        self._outliers = Outliers()

    def compose(self) -> ComposeResult:
        """Lay out the table and the cells, one of them in sight, and beside them the rail."""
        yield self.table
        yield self.heat
        yield self.rail

    def on_mount(self) -> None:
        """Begin with what was chosen in an earlier session."""
        chosen = self.screen_app.remembered.now
        if chosen.zoom in list(Zoom):
            self.chosen_zoom = Zoom(chosen.zoom)
        self.columns = _columns(chosen.columns)

    # What is drawn

    def show(self, watched: Watched) -> None:
        """Draw the newest snapshot at the present zoom."""
        if not self.selection.look(watched):
            return
        zoom = self.zoom
        moved = self.table.display == (zoom is Zoom.HEAT)
        had_focus = self.table.has_focus or self.heat.has_focus
        self.heat.display, self.table.display = zoom is Zoom.HEAT, zoom is not Zoom.HEAT
        {Zoom.GPU: self._show_gpus, Zoom.HOST: self._show_hosts, Zoom.HEAT: self._show_heat}[zoom]()
        if moved and had_focus:
            self.focus_body()
        self._show_rail()

    @property
    def zoom(self) -> Zoom:
        """The zoom that a person chose, else the closest one that fits."""
        room = self.screen_app.size.height - LINES_AROUND
        return self.chosen_zoom or self.selection.fitting(room)

    def _show_rail(self) -> None:
        """Show the GPU under the cursor in full, where there is room beside the rows."""
        key = self.table.cursor
        wide = self.zoom is Zoom.GPU and self.size.width >= RAIL_FROM and key is not None
        if self.rail.display != wide:
            self.rail.display = wide
        if wide and key is not None:
            slots = self.selection.by_host.get(key)
            self.screen_app.head.follow_logs()
            self.rail.show(self.screen_app.watched, slots[0].key if slots else key)

    def _show_gpus(self) -> None:
        width = self.table.scrollable_content_region.width
        rows = GpuRows(self.selection, self.screen_app.watched, self.columns, width)
        self._fitting = rows.columns
        self._headings = rows.headings
        self.table.show(rows.heading, self.selection.keys(), rows.row)

    def _show_hosts(self) -> None:
        selection = self.selection
        names = min(NAME_MOST, max([4, *map(len, selection.by_host)]))
        most = max((len(slots) for slots in selection.by_host.values()), default=0)
        layout = HostLayout.fitting(names, most, self.table.scrollable_content_region.width)

        def row(name: str) -> Line:
            host, slots = selection.hosts[name], selection.by_host[name]
            return host_row(host, slots, layout, selection.now, marked=name in selection.marked)

        self._host_columns, self._headings = layout.columns, layout.headings
        heading = layout.heading(selection.hosts_sorted_by, selection.hosts_backwards)
        self.table.show(((heading, "title"),), selection.host_keys(), row)

    def _show_heat(self) -> None:
        selection = self.selection
        blocks = [
            Block(name, tuple(slot.key for slot in slots) or (name,))
            for name, slots in selection.by_host.items()
        ]
        self.heat.draw(blocks, self._cell, self._outliers.lines(selection))

    def _cell(self, key: str) -> Part:
        slot = self.selection.slots.get(key)
        if slot is not None:
            return glyph(slot)
        return host_glyph(self.selection.hosts[key], self.selection.by_host[key])

    def crumbs(self) -> Line:
        """Say how close this is, what is shown, what is marked and what calls for a person."""
        zoom = self.zoom
        at = self.selection.told(self.cursor) if zoom is Zoom.HEAT else ()
        return [(f"{zoom.value} zoom", "dim"), *at, *self.selection.crumbs()]

    # What is under the cursor

    @property
    def cursor(self) -> str | None:
        """The key of the slot or host under the cursor."""
        return self.heat.cursor if self.zoom is Zoom.HEAT else self.table.cursor

    def targets(self) -> tuple[str, ...]:
        """Return what is marked, else what is under the cursor."""
        if self.selection.marked:
            return tuple(sorted(self.selection.marked))
        return (self.cursor,) if self.cursor else ()

    def go_to(self, key: str) -> None:
        """Put the cursor on a slot, or on a host."""
        slot = self.selection.slots.get(key)
        if slot is not None and self.zoom is not Zoom.GPU:
            self.chosen_zoom = Zoom.GPU
        if slot is not None:
            self.selection.folded.discard(slot.host.name)
            self.show(self.screen_app.watched)
        self.table.select(key)

    def focus_body(self) -> None:
        """Put the focus on what is in sight."""
        self.take_focus(self.heat if self.zoom is Zoom.HEAT else self.table)

    def on_table_moved(self, event: Table.Moved) -> None:
        """Show the GPU that the cursor came to in the rail."""
        event.stop()
        if event.table is self.table:
            self._show_rail()

    def on_table_chosen(self, event: Table.Chosen) -> None:
        """Look closer at a host; at a GPU, at what is on it."""
        event.stop()
        if event.table is not self.table:
            return
        if event.key in self.selection.slots:
            self.screen_app.go_to("device", event.key)
        elif self.zoom is Zoom.HOST:
            self.zoom_to(Zoom.GPU, event.key)
        else:
            self.fold()

    def on_table_headed(self, event: Table.Headed) -> None:
        """Sort by the column whose heading was clicked; the other way around when it is already."""
        event.stop()
        key = self._column_at(event.x)
        selection = self.selection
        now = selection.hosts_sorted_by if self.zoom is Zoom.HOST else selection.sorted_by
        if key and now and now.key == key:
            self.reverse()
        elif key:
            self.sort(key)

    def _column_at(self, x: int) -> str:
        """Return the key of the column that a cell is in, `host` for the names, "" for none."""
        columns = self._headings
        index = column_at([width for _, width in columns], x)
        return "" if index is None else columns[index][0]

    def on_heat_pane_chosen(self, event: HeatPane.Chosen) -> None:
        """Look closer at a cell."""
        event.stop()
        self.zoom_to(Zoom.GPU, event.key)

    def on_heat_pane_moved(self, event: HeatPane.Moved) -> None:
        """Say which cell the cursor came to."""
        event.stop()
        self.screen_app.draw_crumbs()

    # What a person changes

    def zoom_to(self, zoom: Zoom, key: str | None = None) -> None:
        """Look from so far, with the cursor where it was."""
        key = key or self.cursor
        self.chosen_zoom = zoom
        self.screen_app.draw()
        self.focus_body()
        if key is not None:
            self.table.select(key)

    def zoom_by(self, steps: int) -> None:
        """Look from farther, or closer, also in later sessions."""
        zooms = list(Zoom)
        place = zooms.index(self.zoom) + steps
        self.zoom_to(zooms[max(0, min(place, len(zooms) - 1))])
        self.screen_app.prefer(zoom=self.zoom.value)

    def filter(self, text: str) -> str:
        """Show only what matches; return what is wrong with the filter, or ""."""
        try:
            self.selection.filter(text)
        except FilterError as error:
            return str(error)
        self.screen_app.redraw()
        return ""

    @property
    def filter_text(self) -> str:
        """The filter as it was typed."""
        return self.selection.filter_text

    def back(self) -> bool:
        """Let go of the marks, then of the filter, then of the zoom."""
        if self.selection.marked:
            self.selection.marked.clear()
        elif self.selection.filter_text:
            self.filter("")
        elif self.chosen_zoom is not None:
            self.chosen_zoom = None
            self.screen_app.prefer(zoom="")
        else:
            return False
        self.screen_app.draw()
        self.focus_body()
        return True

    def mark(self) -> None:
        """Mark what is under the cursor, or unmark it, and go on to the next."""
        if (key := self.cursor) is not None:
            self.selection.marked ^= {key}
            if self.zoom is not Zoom.HEAT:
                self.table.action_move(1)
            self.screen_app.draw()

    def fold(self) -> None:
        """Fold the host under the cursor, or unfold it."""
        if (key := self.cursor) is not None:
            host = self.selection.fold(key)
            self.screen_app.draw()
            self.table.select(host)

    def fold_all(self) -> None:
        """Fold all hosts, or unfold them."""
        self.selection.fold_all()
        self.screen_app.draw()

    def sort(self, name: str) -> None:
        """Sort hosts in their own zoom, else GPUs: by a column, by the next without a name."""
        if self.zoom is Zoom.HOST:
            self._sort_hosts(name)
        else:
            self._sort_gpus(name)
        self.screen_app.draw()

    def _sort_hosts(self, name: str) -> None:
        now = self.selection.hosts_sorted_by
        keys = keys_of(self._host_columns)
        chosen = self._order(name, now.key if now else "host", keys, HOST_COLUMNS)
        self.selection.hosts_sorted_by = HOST_COLUMNS.get(chosen)
        self.selection.hosts_backwards = False

    def _sort_gpus(self, name: str) -> None:
        now = self.selection.sorted_by
        keys = ["host", *(column.key for column in self._fitting or self.columns)]
        chosen = self._order(name, now.key if now else "host", keys, BY_KEY)
        self.selection.sorted_by = BY_KEY.get(chosen)
        self.selection.backwards = False
        self.chosen_zoom = Zoom.GPU

    def _order(self, name: str, now: str, shown: list[str], known: Iterable[str]) -> str:
        """Return the order that is meant: one that was named, else the one after the present."""
        following = shown[(shown.index(now) + 1) % len(shown)] if now in shown else "host"
        if name and name not in (*known, "host"):
            raise HeadError(f"sort by {', '.join(known)} or host")
        return name or following

    def reverse(self) -> None:
        """Turn the order around."""
        if self.zoom is Zoom.HOST:
            self.selection.hosts_backwards = not self.selection.hosts_backwards
        else:
            self.selection.backwards = not self.selection.backwards
        self.screen_app.draw()

    async def choose_columns(self, names: str) -> None:
        """Show these columns, all with `all`; without a name, let them be picked from a list."""
        chosen: tuple[str, ...] | None = tuple(names.split())
        unknown = [name for name in names.split() if name not in (*BY_KEY, "all")]
        if unknown:
            self.screen_app.say(f"no column {unknown[0]}; there are {', '.join(BY_KEY)}", bad=True)
            return
        if not chosen:
            shown = [column.key for column in self.columns]
            items = {column.key: DOES[column.key] for column in COLUMNS}
            chosen = await self.screen_app.ask(Picker("Columns", items, shown))
        if chosen is not None:
            self.columns = _columns(chosen)
            keys = () if self.columns == COLUMNS else tuple(column.key for column in self.columns)
            self.screen_app.prefer(columns=keys)
            self.screen_app.draw()


def _columns(names: tuple[str, ...]) -> tuple[Column, ...]:
    """Return the columns of these names in their own order; all where none is known."""
    return tuple(column for column in COLUMNS if column.key in names) or COLUMNS
