"""The fleet at three zooms: a row per GPU under its host, a row per host, a cell per GPU.

The zoom that fits is chosen by itself until a person chooses one. Order, filter, marks, folded
hosts and columns hold for all that is shown. `rendering/metrics.py` has the readings, `rows` how
GPUs and hosts are drawn, `selection` which of them.
"""

from collections.abc import Iterable
from dataclasses import replace

from textual.app import ComposeResult
from textual.containers import Vertical

from gputui.model.series import Span
from gputui.model.slots import Slot
from gputui.tui.commands.fleet_commands import FLEET_COMMANDS
from gputui.tui.rendering.columns import UNCUT, Column, Order, column_at
from gputui.tui.rendering.lines import Line
from gputui.tui.rendering.metrics import UTIL, Metric
from gputui.tui.views.device_view import DetailPane
from gputui.tui.views.fleet.rows import (
    COLUMNS,
    CPU_HOST_COLUMNS,
    GLYPHS,
    HOST_COLUMNS,
    Look,
    Row,
    Rows,
    Zoom,
    columns_named,
)
from gputui.tui.views.fleet.selection import FLEET_FIELDS, Outliers, Selection, laid_out
from gputui.tui.views.start_view import evidence
from gputui.tui.views.view import View
from gputui.tui.watched import Watched
from gputui.tui.widgets.heat import HeatPane
from gputui.tui.widgets.table import HEADING, Table

LINES_AROUND = 4
"""Lines of the terminal that are not the view's, as long as its size is not known."""
GLYPHS_LEAST = 8


class FleetView(View):
    """Every GPU of the cluster."""

    NAME = "fleet"
    COMMANDS = FLEET_COMMANDS
    FILTER = FLEET_FIELDS
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
        self.below, self.rail = DetailPane(id="below"), DetailPane(id="rail")
        self.selection = Selection()
        self.host_order = Order(HOST_COLUMNS, unsorted="host")
        self.chosen_zoom: Zoom | None = None
        self.columns: tuple[Column[Row], ...] = COLUMNS
        self.metric: Metric | None = UTIL
        self.span = Span.MINUTES_2
        self._layout = (0, 0)
        self._headings: tuple[tuple[str, int], ...] = ()
        """The orders that a click on the heading means, and the cells of each."""
        self.outliers = Outliers()

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
        self.columns = columns_named(chosen.columns)

    # What is drawn

    def show(self, watched: Watched) -> None:
        """Draw the newest snapshot at the present zoom."""
        if watched.snapshot is None:
            return
        now, alarms, flat = watched.snapshot.taken_at, watched.by_subject, self.heat.palette.flat
        look = Look(now, alarms, watched.last_task_at, watched.history, self.metric, flat)
        self.selection.take(watched, look)
        if not self.size.height:  # it is about to be laid out
            self.call_after_refresh(self.screen_app.redraw)
            return
        zoom = self.zoom
        moved = self.table.display == (zoom is Zoom.HEAT)
        had_focus = self.table.has_focus or self.heat.has_focus
        self.heat.display, self.table.display = zoom is Zoom.HEAT, zoom is not Zoom.HEAT
        self._lay_out(laid_out(zoom, *self.size, self._lines(zoom)))
        if zoom is Zoom.HEAT:
            self.heat.draw(self.selection.blocks(), self.selection.cell, look.legend())
        else:
            self._show_rows()
        if moved and had_focus:
            self.focus_body()
        self._show_selected()

    @property
    def zoom(self) -> Zoom:
        """The zoom that a person chose, else the closest one that fits."""
        height = self.size.height or self.screen_app.size.height - LINES_AROUND
        return self.chosen_zoom or self.selection.fitting(height - HEADING)

    def _lines(self, zoom: Zoom) -> int:
        """Return how many lines the rows or cells would take."""
        width, height = self.size
        if zoom is Zoom.HEAT:
            rail, _ = laid_out(zoom, width, height, height)
            return self.heat.lines_wanted(self.selection.blocks(), width - rail, height)
        keys = self.selection.by_host if zoom is Zoom.HOST else self.selection.keys()
        return len(keys) + HEADING

    def _lay_out(self, layout: tuple[int, int]) -> None:
        """Give rail and pane their room; they are drawn when they have it."""
        if layout == self._layout:
            return
        rail, below = self._layout = layout
        self.rail.display, self.below.display = bool(rail), bool(below)
        self.rail.styles.width, self.below.styles.height = rail, below
        self.call_after_refresh(self.screen_app.redraw)

    @property
    def _host_columns(self) -> tuple[Column[Row], ...]:
        return HOST_COLUMNS if self.selection.on_gpus else CPU_HOST_COLUMNS

    def _rows(self, width: int) -> Rows:
        """Return rows as they are drawn at the present zoom."""
        selection, columns = self.selection, self.columns
        names: Iterable[str] = selection.by_host
        if self.zoom is Zoom.HOST:
            most = max(map(len, selection.by_host.values()), default=1)
            glyphs = replace(GLYPHS, width=max(4, min(GLYPHS_LEAST, most)), most=most)
            columns = tuple(glyphs if each is GLYPHS else each for each in self._host_columns)
        else:
            grouped = not selection.order.chosen
            names = (slot.label if grouped else key for key, slot in selection.slots.items())
        return Rows(
            selection.row, names, self.order, columns, width, on_gpus=selection.on_gpus,
            zoom=self.zoom, marked=selection.marked, folded=selection.folded,
        )  # fmt: skip

    def _show_rows(self) -> None:
        keys, rows = self.selection.keys(), self._rows(self.table.scrollable_content_region.width)
        if self.zoom is Zoom.HOST:
            hosts = map(self.selection.row, self.selection.by_host)
            keys = [row.key for row in self.host_order.sorted(hosts)]
        self._headings = rows.headings
        self.table.show(rows.heading, keys, rows.line)

    def _show_selected(self) -> None:
        """Show the GPU under the cursor in full where there is room, and the outliers."""
        watched, slot, (rail, below) = self.screen_app.watched, self.selected, self._layout
        if rail or below:
            self.screen_app.head.follow_logs()
        if below:
            self.below.show(watched, slot, self.span, self._trouble(self.below))
        if rail and self.zoom is Zoom.GPU:
            self.rail.show(watched, slot, self.span, self._trouble(self.rail))
        elif rail:
            self.outliers.look(self.selection)
            above = self.outliers.lines(self.selection)
            self.rail.show(watched, None if below else slot, self.span, above)

    def _trouble(self, pane: DetailPane) -> list[Line]:
        """Return why the host under the cursor has nothing to show, whole."""
        key, selection = self.cursor or "", self.selection
        host = selection.hosts.get(key)
        if host is None or selection.by_host.get(key):
            return []
        return evidence(host, pane.size.width)

    @property
    def selected(self) -> Slot | None:
        """The slot under the cursor; of a host, its worst."""
        key, selection = self.cursor or "", self.selection
        slots = selection.by_host.get(key, ())
        alarmed = next((slot for slot in slots if slot.key in selection.look.alarms), None)
        return selection.slots.get(key) or alarmed or next(iter(slots), None)

    def crumbs(self) -> Line:
        """Say how close this is, what is shown, and what is marked."""
        zoom, selection = self.zoom, self.selection
        at = selection.described(self.cursor)
        name = "worker" if zoom is Zoom.GPU and not selection.on_gpus else zoom.value
        line = [(f"{name} zoom", "dim"), *at, selection.size, *selection.crumbs()]
        if sum(len(text) for text, _ in line) > self.screen_app.size.width:
            line.remove(selection.size)
        return line

    # What is under the cursor

    @property
    def cursor(self) -> str | None:
        """The key of the slot or host under the cursor."""
        return self.heat.cursor if self.zoom is Zoom.HEAT else self.table.cursor

    def cells(self) -> list[list[str]]:
        """Return every slot, or every host in their zoom, with all columns."""
        keys = self.selection.by_host if self.zoom is Zoom.HOST else self.selection.slots
        return self._rows(UNCUT).cells(keys)

    def targets(self) -> tuple[str, ...]:
        """Return the marked keys, else the one under the cursor."""
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
        """Show and name the GPU that the cursor came to."""
        event.stop()
        self._show_selected()
        self.screen_app.draw_crumbs()

    def on_table_chosen(self, event: Table.Chosen) -> None:
        """Look closer at a host; at a GPU, at what is on it."""
        event.stop()
        if event.key in self.selection.slots:
            self.screen_app.go_to("device", event.key)
        elif self.zoom is Zoom.HOST:
            self.zoom_to(Zoom.GPU, event.key)
        else:
            self.fold()

    def on_table_headed(self, event: Table.Headed) -> None:
        """Sort by the column whose heading was clicked; the other way around when it is already."""
        event.stop()
        index = column_at((width for _, width in self._headings), event.x)
        if index is not None:
            self.order.click(self._headings[index][0])
            self.screen_app.draw()

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

    def narrow(self, text: str) -> None:
        """Show only what matches; raises FilterError."""
        self.selection.filter(text)

    def back(self) -> bool:
        """Let go of the marks, then of the filter, then of the zoom."""
        if self.selection.marked:
            self.selection.marked.clear()
        elif super().back():
            return True
        elif self.chosen_zoom is not None:
            self.chosen_zoom = None
            self.screen_app.prefer(zoom="")
        else:
            return False
        self.screen_app.draw()
        self.focus_body()
        return True

    def fold(self) -> None:
        """Fold the host under the cursor, or unfold it."""
        if (key := self.cursor) is not None:
            host = self.selection.fold(key)
            self.screen_app.draw()
            self.table.select(host)

    @property
    def order(self) -> Order[Row]:
        """The order of the rows: hosts have their own."""
        return self.host_order if self.zoom is Zoom.HOST else self.selection.order

    @property
    def column_names(self) -> tuple[str, ...]:
        """The columns that it can be sorted by, as far as they are shown."""
        known, shown = self.order.names, {key for key, _ in self._headings}
        return tuple(name for name in known if name in shown) or known

    def sort(self, name: str) -> None:
        """Sort hosts in their own zoom, else GPUs: by a column, by the next without a name."""
        self.order.sort(name, self.column_names)
        if self.zoom is Zoom.HEAT:
            self.chosen_zoom = Zoom.GPU
        self.screen_app.draw()
        self.table.action_end(False)
