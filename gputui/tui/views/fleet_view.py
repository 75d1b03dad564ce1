"""The fleet at three zooms: a row per GPU under its host, a row per host, a cell per GPU.

The zoom that fits is chosen by itself until a person chooses one. Order, filter, marks
and columns hold for all that is shown. `rendering.metrics` has the readings,
`rendering.fleet` which GPUs and hosts are in sight and how they are drawn.
"""

from collections.abc import Iterable, Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.containers import Vertical

from gputui.errors import UsageError
from gputui.model.slots import Slot
from gputui.tui.commands import Command
from gputui.tui.commands.actions import type_command
from gputui.tui.filter import no_such
from gputui.tui.rendering import Line, Part
from gputui.tui.rendering import format as fmt
from gputui.tui.rendering.columns import UNCUT, Column, Order, saved
from gputui.tui.rendering.detail import LEAST_LINES, detail_lines
from gputui.tui.rendering.fleet import (
    BY_KEY,
    COLUMNS,
    FLEET_FIELDS,
    HOST_COLUMNS,
    Look,
    Row,
    Selection,
    Zoom,
    columns_named,
    group_line,
    host_columns,
    laid_out,
    name_column,
    on_cpus,
    without_workers,
)
from gputui.tui.rendering.metrics import HEAT, UTIL, Metric
from gputui.tui.views.device_view import SPAN
from gputui.tui.views.listing import Listing, suggest_columns
from gputui.tui.views.lists import evidence
from gputui.tui.watched import Watched
from gputui.tui.widgets import HEADING, Pane, Table
from gputui.tui.widgets.heat import HeatPane, arrange

LINES_AROUND = 4
"""Lines of the terminal that are not the view's, as long as its size is not known."""


class FleetView(Listing[Row]):
    """Every GPU of the cluster."""

    NAME = "fleet"
    COLUMNS = COLUMNS
    FILTER = FLEET_FIELDS
    KEY = "key"
    DEFAULT_CSS = """
    FleetView { layout: horizontal; }
    FleetView HeatPane { display: none; }
    FleetView #main { width: 1fr; }
    FleetView #below { display: none; }
    FleetView #rail { display: none; border-left: solid $panel; padding-left: 1; }
    """

    def __init__(self) -> None:
        super().__init__()
        self.heat = HeatPane()
        self.below, self.rail = Pane(id="below"), Pane(id="rail")
        self.selection = Selection()
        self._order, self._host_order = Order(COLUMNS, "host"), Order(HOST_COLUMNS, "host")
        self.chosen_zoom: Zoom | None = None
        self.chosen_columns: tuple[Column[Row], ...] = COLUMNS
        self.metric: Metric = UTIL
        self._layout = (0, 0)

    def compose(self) -> ComposeResult:
        """Lay out the table and the cells, one of them in sight; the pane below, and the rail."""
        yield from (Vertical(self.table, self.heat, self.below, id="main"), self.rail)

    def on_mount(self) -> None:
        """Begin with what was chosen in an earlier session."""
        self.chosen_columns = columns_named(self.screen_app.preferences.columns)

    # What is drawn

    def show(self, watched: Watched) -> None:
        """Draw the newest snapshot at the present zoom."""
        look = Look(watched, self.metric, self.heat.palette.flat)
        self.selection.take(look, self._matches)
        self.marked &= self.selection.slots.keys() | self.selection.hosts.keys()
        if not self.size.height:  # it is about to be laid out
            self.call_after_refresh(self.screen_app.redraw)
            return
        zoom = self.zoom
        as_cells = zoom is Zoom.HEAT
        moved = self.heat.display != as_cells and (self.table.has_focus or self.heat.has_focus)
        self.heat.display, self.table.display = as_cells, not as_cells
        if not as_cells:
            self.show_rows(self.values(watched))
        self._lay_out(zoom)
        if as_cells:
            self.heat.show(self.selection.blocks(), self.selection.cell, look.legend())
        if moved:
            self.focus_body()
        self._show_about()

    def values(self, watched: Watched) -> Iterable[Row]:
        """Return the rows of the present zoom that match, in their order."""
        return self.selection.rows(self.zoom, self.order)

    @property
    def zoom(self) -> Zoom:
        """The zoom that a person chose, else the closest one that fits."""
        height = self.size.height or self.screen_app.size.height - LINES_AROUND
        return self.chosen_zoom or self.selection.fitting(height - HEADING)

    def _lay_out(self, zoom: Zoom) -> None:
        """Give rail and pane the room that rows or cells leave, and draw them when they have it."""
        width, height = self.size
        lines = len(self._values)
        if zoom is Zoom.HEAT:
            rail, _ = laid_out(zoom, width, height, height)
            lines = len(arrange(self.selection.blocks(), width - rail, height - 1).lines)
        layout = laid_out(zoom, width, height, min(height, lines + HEADING))  # or the legend
        if layout != self._layout:
            rail, below = self._layout = layout
            self.rail.display, self.below.display = bool(rail), bool(below)
            self.rail.styles.width, self.below.styles.height = rail, below
            self.call_after_refresh(self.screen_app.redraw)

    @property
    def columns(self) -> Sequence[Column[Row]]:
        """The columns of the present zoom, after the name."""
        selection, watched = self.selection, self.screen_app.watched
        if self.zoom is Zoom.HOST:
            most = max(map(len, selection.by_host.values()), default=1)
            hosts = {name: name for name in selection.by_host}
            shown = host_columns(most, on_gpus=watched.on_gpus, watching=watched.watching)
            return [name_column(hosts, "HOST"), *shown]
        grouped, own = not self.order.chosen, self.chosen_columns
        if watched.watching:
            own = tuple(without_workers(own, self.table.scrollable_content_region.width))
        names = {key: slot.label if grouped else key for key, slot in selection.slots.items()}
        name = name_column(names, "GPU" if watched.on_gpus else "WORKER")
        return [name, *(own if watched.on_gpus else on_cpus(own))]

    def line(self, key: str) -> Line:
        """Return the row of a slot or of a host, or the heading over a host's slots."""
        row = self._values[key]
        if row.slot is None and self.zoom is not Zoom.HOST:
            return group_line(row, self._before(row), self.table.scrollable_content_region.width)
        if row.host.reason and not row.slots:
            (name, width), (text, role) = self._shown[0], row.state
            parts = [self._before(row), *name.cell(row, width)]
            return [*parts, (f" {text}  ", role), (fmt.safe(row.host.cause), "warn")]
        return super().line(key)

    def sign(self, value: Row) -> Part:
        """Return a mark before what is alarming, before a host over its GPUs for its own alarms."""
        role = value.role if self.zoom is Zoom.HOST else value.own_role
        return ("!", role) if role else (" ", "")

    def is_old(self, value: Row) -> bool:
        """Return whether a slot's readings are out of date."""
        return value.slot is not None and value.slot.dead

    def _show_about(self) -> None:
        """Show the GPU under the cursor in full where there is room, and the outliers."""
        rail, below = self._layout
        for pane in [each for each, room in ((self.below, below), (self.rail, rail)) if room]:
            slot, (width, height) = self.selected, pane.size
            if pane is self.rail and self.zoom is not Zoom.GPU:
                above = self.selection.outlier_lines(filtered=bool(self.filter_text))
                slot = None if below else slot
            else:
                above = self._trouble(width)
            lines = [*above, ()] if above else []
            room = height - len(lines)
            if slot is not None and width and room >= LEAST_LINES:
                lines += detail_lines(self.screen_app.watched, slot, self.span, width, room)
            pane.put(lines)

    def _trouble(self, width: int) -> list[Line]:
        """Return why the host under the cursor has nothing to show, whole."""
        host = self.selection.hosts.get(self.cursor or "")
        if host is None or self.selection.by_host.get(host.name):
            return []
        return evidence(host, width)

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
        name = "worker" if zoom is Zoom.GPU and not selection.look.watched.on_gpus else zoom.value
        line = [(f"{name} zoom", "dim"), *at, selection.size, *self.narrowed()]
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
        selection, hosts = self.selection, self.zoom is Zoom.HOST
        rows = map(selection.row, selection.by_host if hosts else selection.slots)
        first: Column[Row] = Column("name", "", UNCUT, 0, lambda row, _: [(row.key, "")])
        return saved([first, *self.columns[1:]], self.order.sorted(rows))

    def go_to(self, key: str) -> None:
        """Put the cursor on a slot, or on a host."""
        slot = self.selection.slots.get(key)
        if slot is not None:
            if self.zoom is not Zoom.GPU:
                self.chosen_zoom = Zoom.GPU
            self.show(self.screen_app.watched)
        self.table.select(key)

    def focus_body(self) -> None:
        """Put the focus on what is in sight."""
        self.take_focus(self.heat if self.zoom is Zoom.HEAT else self.table)

    def moved(self) -> None:
        """Show and name the GPU that the cursor came to."""
        self._show_about()
        self.screen_app.draw_crumbs()

    def on_table_chosen(self, event: Table.Chosen) -> None:
        """Look closer at a cell, a host, a GPU, or the host that GPUs stand under."""
        event.stop()
        if self.zoom is not Zoom.GPU:
            self.zoom_to(Zoom.GPU, event.key)
        elif event.key in self.selection.slots:
            self.screen_app.go_to("device", event.key)
        else:
            self.screen_app.go_to("hosts", event.key)

    # What a person changes

    def zoom_to(self, zoom: Zoom | None, key: str | None = None) -> None:
        """Look from so far, or from where all fits, with the cursor where it was."""
        key = key or self.cursor
        self.chosen_zoom = zoom
        self.screen_app.draw()
        self.focus_body()
        if key is not None:
            self.table.select(key)

    def zoom_by(self, steps: int) -> None:
        """Look from farther, or closer."""
        zooms = list(Zoom)
        place = zooms.index(self.zoom) + steps
        if place not in range(len(zooms)):
            last = "the closest zoom: Z zooms out" if steps < 0 else "the widest zoom: z zooms in"
            self.screen_app.say(f"this is {last}")
            return
        self.zoom_to(zooms[place])

    def back(self) -> bool:
        """Let go of the marks, then of the filter, then of the zoom."""
        if super().back():
            return True
        if self.chosen_zoom is None:
            return False
        self.zoom_to(None)
        return True

    @property
    def order(self) -> Order[Row]:
        """The order of the rows: hosts have their own."""
        return self._host_order if self.zoom is Zoom.HOST else self._order

    def sort(self, name: str) -> None:
        """Sort hosts in their own zoom, else GPUs: by a column, by the next without a name."""
        super().sort(name)
        if self.zoom is Zoom.HEAT:
            self.zoom_to(Zoom.GPU)

    def next_metric(self) -> None:
        """Show the next metric in the heat map."""
        self.metric = HEAT[(HEAT.index(self.metric) + 1) % len(HEAT)]
        if self.zoom is Zoom.GPU:
            self.zoom_to(Zoom.HEAT)
        self.screen_app.draw()

    def next_outlier(self) -> None:
        """Put the cursor on the next GPU that has an alarm or is an outlier."""
        key = self.selection.outlier_after(self.cursor)
        if key is None:
            self.screen_app.say("no alarms, no outliers")
        elif self.zoom is Zoom.HEAT:
            self.heat.select(key)
        else:
            self.go_to(key)

    async def choose_columns(self, names: str) -> None:
        """Show these columns, all with `all`; without a name, have the present ones changed."""
        app, chosen = self.screen_app, names.split()
        unknown = [name for name in chosen if name not in (*BY_KEY, "all")]
        if unknown:
            raise UsageError(no_such("column", unknown[0], BY_KEY))
        if not chosen:
            shown = [column.key for column in self.chosen_columns]
            await type_command(app, " ".join(["columns", *shown]))
            return
        self.chosen_columns = columns_named(chosen)
        keys = tuple(column.key for column in self.chosen_columns)
        app.prefer(columns=() if self.chosen_columns == COLUMNS else keys)
        app.draw()

    COMMANDS: ClassVar[tuple[Command, ...]] = (
        Command("zoom-in", "Zoom in", lambda view: view.zoom_by(-1), "z", hint="zoom"),
        Command("zoom-out", "Zoom out", lambda view: view.zoom_by(1), "Z"),
        Command("mark", "Mark or unmark", Listing.mark, "space", hint="mark"),
        Command(
            "sort", "Sort by a column", sort, "s", "[COLUMN]", "sort", suggest=suggest_columns
        ),
        Command(
            "reverse", "Reverse the order", Listing.sort_backwards, "v",
            unavailable=lambda view: "" if view.order.chosen else "nothing is sorted yet",
        ),
        Command(
            "metric", "Next heat map: use, memory, power, °C, last task",
            next_metric, "m",
        ),
        Command("outlier", "Go to the next alarm or outlier", next_outlier, "o"),
        Command("span", SPAN, Listing.next_span, "t"),
        Command(
            "columns", "Choose the columns", choose_columns, "C", "[COLUMN…|all]",
            suggest=lambda _app, _words: ["all", *BY_KEY],
        ),
    )  # fmt: skip
