"""The fleet at three zooms: a row per GPU under its host, a row per host, a cell per GPU.

The zoom that fits is chosen by itself until a person chooses one. Order, filter, marks, folded
hosts and columns hold for all that is shown.
"""

from collections.abc import Callable, Iterable

from textual.app import ComposeResult
from textual.containers import Vertical

from gputui.errors import HeadError
from gputui.slots import Slot
from gputui.tui.commands.fleet_commands import FLEET_COMMANDS
from gputui.tui.dialogs.modal import Picker
from gputui.tui.filter import FilterError, no_such
from gputui.tui.history import Span
from gputui.tui.rendering.columns import Column, column_at
from gputui.tui.rendering.detail import LEAST_LINES, detail_lines
from gputui.tui.rendering.lines import Line, Part
from gputui.tui.views.device_view import DetailPane, detail_of
from gputui.tui.views.fleet.gpu_columns import BY_KEY, COLUMNS, HISTORY
from gputui.tui.views.fleet.gpu_rows import GpuRows
from gputui.tui.views.fleet.heat_cells import HeatLook, HeatMetric
from gputui.tui.views.fleet.host_rows import HOST_BY_KEY, HostRows
from gputui.tui.views.fleet.layout import FleetLayout, laid_out
from gputui.tui.views.fleet.outliers import Outliers
from gputui.tui.views.fleet.selection import SLOT_FIELDS, Selection, Zoom
from gputui.tui.views.view import View
from gputui.tui.watched import Watched
from gputui.tui.widgets.heat import Block, HeatPane
from gputui.tui.widgets.pane import Pane
from gputui.tui.widgets.table import HEADING, Table

LINES_AROUND = 4
"""Lines of the terminal that are not the view's, as long as its size is not known."""


class FleetView(View):
    """Every GPU of the cluster."""

    NAME = "fleet"
    COMMANDS = FLEET_COMMANDS
    FILTER = SLOT_FIELDS
    DEFAULT_CSS = """
    FleetView { layout: horizontal; }
    FleetView HeatPane { display: none; }
    FleetView #main { width: 1fr; }
    FleetView #below { display: none; }
    FleetView #rail { display: none; border-left: solid $panel; padding-left: 1; }
    """

    def __init__(self) -> None:
        super().__init__()
        self.table, self.heat = Table(), HeatPane()
        self.below, self.rail = DetailPane(id="below"), Pane(id="rail")
        self.rail.can_focus = False
        self.selection = Selection()
        self.chosen_zoom: Zoom | None = None
        self.columns: tuple[Column[Slot], ...] = COLUMNS
        self.metric = HeatMetric.UTILIZATION
        self.span = Span.MINUTES_2
        self._layout = FleetLayout()
        self._shown_columns: list[str] = []
        self._headings: tuple[tuple[str, int], ...] = ()
        """The orders that a click on the heading means, and the cells of each."""
        self._outliers = Outliers()

    def compose(self) -> ComposeResult:
        """Lay out the table and the cells, one of them in sight; the pane below, and the rail."""
        with Vertical(id="main"):
            yield self.table
            yield self.heat
            yield self.below
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
        if not self.size.height:  # it is about to be laid out
            self.call_after_refresh(self.screen_app.redraw)
            return
        zoom = self.zoom
        moved = self.table.display == (zoom is Zoom.HEAT)
        had_focus = self.table.has_focus or self.heat.has_focus
        self.heat.display, self.table.display = zoom is Zoom.HEAT, zoom is not Zoom.HEAT
        look = self._look(watched)
        self._lay_out(laid_out(zoom, *self.size, self._lines(zoom)))
        {Zoom.GPU: self._show_gpus, Zoom.HOST: self._show_hosts, Zoom.HEAT: self._show_heat}[zoom](
            watched, look
        )
        if moved and had_focus:
            self.focus_body()
        self._show_selected()

    @property
    def zoom(self) -> Zoom:
        """The zoom that a person chose, else the closest one that fits."""
        height = self.size.height or self.screen_app.size.height - LINES_AROUND
        return self.chosen_zoom or self.selection.fitting(height - HEADING)

    def _look(self, watched: Watched) -> HeatLook:
        flat = self.heat.palette.flat
        now, alarms = self.selection.now, self.selection.alarms
        return HeatLook(self.metric, now, watched.last_task_at, alarms, flat)

    def _lines(self, zoom: Zoom) -> int:
        """Return how many lines the rows or cells would take."""
        width, height = self.size
        if zoom is Zoom.HEAT:
            rail = laid_out(zoom, width, height, height).rail
            return self.heat.lines_wanted(self._blocks(), width - rail, height)
        keys = self.selection.by_host if zoom is Zoom.HOST else self.selection.keys()
        return len(keys) + HEADING

    def _lay_out(self, layout: FleetLayout) -> None:
        """Give rail and pane their room; they are drawn when they have it."""
        if layout == self._layout:
            return
        self._layout = layout
        self.rail.display, self.below.display = bool(layout.rail), bool(layout.below)
        self.rail.styles.width, self.below.styles.height = layout.rail, layout.below
        self.call_after_refresh(self.screen_app.redraw)

    def _show_gpus(self, watched: Watched, look: HeatLook) -> None:
        width = self.table.scrollable_content_region.width
        rows = GpuRows(self.selection, watched, look, self.columns, width)
        self._shown_columns = [each.column.key for each in rows.columns]
        self._headings = rows.headings
        self.table.show(rows.heading, self.selection.keys(), rows.row)

    def _show_hosts(self, watched: Watched, look: HeatLook) -> None:
        rows = HostRows(self.selection, look, self.table.scrollable_content_region.width)
        self._shown_columns = [each.column.key for each in rows.columns]
        self._headings = rows.headings
        self.table.show(rows.heading, rows.keys(), rows.row)

    def _show_heat(self, watched: Watched, look: HeatLook) -> None:
        selection = self.selection

        def cell(key: str) -> Part:
            slot = selection.slots.get(key)
            if slot is not None:
                return look.cell(slot)
            return look.host_cell(selection.hosts[key], selection.by_host[key])

        self.heat.draw(self._blocks(), cell, look.legend())

    def _blocks(self) -> list[Block]:
        return [
            Block(name, tuple(slot.key for slot in slots) or (name,))
            for name, slots in self.selection.by_host.items()
        ]

    def _show_selected(self) -> None:
        """Show the GPU under the cursor in full where there is room, and the outliers."""
        watched, slot = self.screen_app.watched, self.selected
        if self._layout.below and slot is not None:
            self.screen_app.head.follow_logs()
            self.below.show(watched, slot, self.span)
        if not self._layout.rail:
            return
        if self.zoom is Zoom.GPU:
            self.screen_app.head.follow_logs()
            self.rail.put(self._detail(watched, slot, self.rail.size.height))
            return
        self._outliers.look(self.selection, watched.history)
        lines = self._outliers.lines(self.selection)
        room = self.rail.size.height - len(lines) - 1
        if not self._layout.below and room >= LEAST_LINES:
            lines = [*lines, (), *self._detail(watched, slot, room)]
        self.rail.put(lines)

    def _detail(self, watched: Watched, slot: Slot | None, height: int) -> list[Line]:
        if slot is None or not self.rail.size.width:
            return []
        return detail_lines(detail_of(watched, slot, self.span), self.rail.size.width, height)

    @property
    def selected(self) -> Slot | None:
        """The slot under the cursor; of a host, its worst."""
        key, selection = self.cursor or "", self.selection
        slots = selection.by_host.get(key, ())
        alarmed = next((slot for slot in slots if slot.key in selection.alarms), None)
        return selection.slots.get(key) or alarmed or next(iter(slots), None)

    def crumbs(self) -> Line:
        """Say how close this is, what is shown, what is marked, and the alarms."""
        zoom = self.zoom
        slot = self.selected
        at = self.selection.described(slot.key if slot and zoom is Zoom.GPU else self.cursor)
        of_cpus = zoom is Zoom.GPU and not any(
            slot.device for slot in self.selection.slots.values()
        )
        name = "worker" if of_cpus else zoom.value
        line = [(f"{name} zoom", "dim"), *at, self.selection.size, *self.selection.crumbs()]
        if sum(len(text) for text, _ in line) > self.screen_app.size.width:
            line.remove(self.selection.size)
        return line

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
        """Show the GPU that the cursor came to."""
        event.stop()
        if event.table is self.table:
            self._show_selected()

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
        self._show_selected()
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
    def column_names(self) -> tuple[str, ...]:
        """The columns that it can be sorted by."""
        return ("host", *(key for key in self._shown_columns if key != HISTORY))

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
        keys = ["host", *self._shown_columns]
        chosen = self._order(name, now.key if now else "host", keys, HOST_BY_KEY)
        self.selection.hosts_sorted_by = HOST_BY_KEY.get(chosen)
        self.selection.hosts_backwards = False

    def _sort_gpus(self, name: str) -> None:
        now = self.selection.sorted_by
        shown = self._shown_columns if self.zoom is Zoom.GPU else list(BY_KEY)
        keys = ["host", *(key for key in shown if key != HISTORY)]
        chosen = self._order(name, now.key if now else "host", keys, BY_KEY)
        self.selection.sorted_by = BY_KEY.get(chosen)
        self.selection.backwards = False
        self.chosen_zoom = Zoom.GPU

    def _order(self, name: str, now: str, shown: list[str], known: Iterable[str]) -> str:
        """Return the order that is meant: one that was named, else the one after the present."""
        following = shown[(shown.index(now) + 1) % len(shown)] if now in shown else "host"
        if name and name not in (*known, "host"):
            raise HeadError(no_such("column", name, ("host", *known)))
        return name or following

    def reverse(self) -> None:
        """Turn the order around."""
        if self.zoom is Zoom.HOST:
            self.selection.hosts_backwards = not self.selection.hosts_backwards
        else:
            self.selection.backwards = not self.selection.backwards
        self.screen_app.draw()

    def next_metric(self) -> None:
        """Let the cells show the next reading."""
        self.metric = self.metric.next
        if self.zoom is Zoom.GPU:
            self.zoom_to(Zoom.HEAT)
        self.screen_app.draw()

    def next_span(self) -> None:
        """Let the graphs go farther back; after the farthest, the nearest again."""
        self.span = self.span.next
        self.screen_app.draw()

    def next_outlier(self) -> None:
        """Put the cursor on the next GPU that has an alarm or is an outlier."""
        self._outliers.look(self.selection, self.screen_app.watched.history)
        key = self._outliers.after(self.cursor)
        if key is None:
            self.screen_app.say("no alarms, no outliers")
        elif self.zoom is Zoom.HEAT:
            self.heat.select(key)
        else:
            self.go_to(key)

    async def choose_columns(self, names: str) -> None:
        """Show these columns, all with `all`; without a name, let them be picked from a list."""
        chosen: tuple[str, ...] | None = tuple(names.split())
        unknown = [name for name in names.split() if name not in (*BY_KEY, "all")]
        if unknown:
            self.screen_app.say(f"no column {unknown[0]}; there are {', '.join(BY_KEY)}", bad=True)
            return
        if not chosen:
            shown = [column.key for column in self.columns]
            items = {column.key: column.does for column in COLUMNS}
            picked = await self.screen_app.ask(Picker("Columns", items, shown))
            chosen = None if picked is None else tuple(sorted(picked, key=_order_of(shown)))
        if chosen is not None:
            self.columns = _columns(chosen)
            keys = () if self.columns == COLUMNS else tuple(column.key for column in self.columns)
            self.screen_app.prefer(columns=keys)
            self.screen_app.draw()


def _columns(names: tuple[str, ...]) -> tuple[Column[Slot], ...]:
    """Return the columns of these names; all where none is known."""
    return tuple(BY_KEY[name] for name in dict.fromkeys(names) if name in BY_KEY) or COLUMNS


def _order_of(shown: list[str]) -> Callable[[str], int]:
    """Return the place of a column: those shown in their order, then the others in theirs."""
    order = [*shown, *(column.key for column in COLUMNS)]
    return order.index
