"""The commands of the fleet view, called with it, and of the device view."""

from typing import TYPE_CHECKING

from gputui.tui.commands.command_registry import Command
from gputui.tui.completion import columns, gpu_columns
from gputui.tui.dialogs.modal import Picker
from gputui.tui.filter import no_such
from gputui.tui.views.fleet.rows import BY_KEY, COLUMNS, HEAT, Zoom, columns_named

if TYPE_CHECKING:
    from gputui.tui.views.device_view import DeviceView
    from gputui.tui.views.fleet.fleet_view import FleetView


def _unsorted(view: "FleetView") -> str:
    return "" if view.order.chosen else "nothing is sorted yet"


def _ungrouped(view: "FleetView") -> str:
    if view.zoom is not Zoom.GPU:
        return f"nothing to fold in the {view.zoom.value} zoom"
    return "rows are not grouped by host while sorted" if view.selection.order.chosen else ""


def _mark(view: "FleetView") -> None:
    """Mark or unmark the row under the cursor, and move to the next."""
    if (key := view.cursor) is not None:
        view.selection.marked ^= {key}
        if view.zoom is not Zoom.HEAT:
            view.table.action_move(1)
        view.screen_app.draw()


def _reverse(view: "FleetView") -> None:
    view.order.reverse()
    view.screen_app.draw()


def _next_metric(view: "FleetView") -> None:
    view.metric = HEAT[(HEAT.index(view.metric) + 1) % len(HEAT)]
    if view.zoom is Zoom.GPU:
        view.zoom_to(Zoom.HEAT)
    view.screen_app.draw()


def _next_outlier(view: "FleetView") -> None:
    """Put the cursor on the next GPU that has an alarm or is an outlier."""
    view.outliers.look(view.selection)
    key = view.outliers.after(view.cursor)
    if key is None:
        view.screen_app.say("no alarms, no outliers")
    elif view.zoom is Zoom.HEAT:
        view.heat.select(key)
    else:
        view.go_to(key)


def _fold_all(view: "FleetView") -> None:
    view.selection.folded = set() if view.selection.folded else set(view.selection.by_host)
    view.screen_app.draw()


def _next_span(view: "FleetView | DeviceView") -> None:
    view.span = view.span.next
    view.screen_app.draw()


async def _choose_columns(view: "FleetView", names: str) -> None:
    """Show these columns, all with `all`; without a name, let them be picked from a list."""
    app, chosen = view.screen_app, names.split()
    unknown = [name for name in chosen if name not in (*BY_KEY, "all")]
    if unknown:
        app.say(no_such("column", unknown[0], BY_KEY), bad=True)
        return
    if not chosen:
        shown = [column.key for column in view.columns]
        items = {column.key: column.does for column in COLUMNS}
        picked = await app.ask(Picker("Columns", items, shown))
        if picked is None:
            return
        chosen = sorted(picked, key=[*shown, *BY_KEY].index)
    view.columns = columns_named(chosen)
    keys = () if view.columns == COLUMNS else tuple(column.key for column in view.columns)
    app.prefer(columns=keys)
    app.draw()


SPAN = "Graphs of 2 minutes, 10 minutes, 1 hour"

FLEET_COMMANDS = (
    Command("zoom-in", "Zoom in", lambda view: view.zoom_by(-1), "z", hint="zoom"),
    Command("zoom-out", "Zoom out", lambda view: view.zoom_by(1), "Z"),
    Command("mark", "Mark or unmark", _mark, "space", hint="mark"),
    Command(
        "fold", "Fold a host, or unfold it", lambda view: view.fold(), "u", unavailable=_ungrouped
    ),
    Command(
        "fold-all", "Fold all hosts, or unfold them", _fold_all, "U", unavailable=_ungrouped
    ),
    Command(
        "sort", "Sort by a column", lambda view, name: view.sort(name), "s", "[COLUMN]", "sort",
        suggest=columns,
    ),
    Command(
        "reverse", "Reverse the order", _reverse, "v", unavailable=_unsorted
    ),
    Command(
        "metric", "Next heat map: utilisation, memory, power, temperature, last task",
        _next_metric, "m",
    ),
    Command("outlier", "Go to the next alarm or outlier", _next_outlier, "o"),
    Command("span", SPAN, _next_span, "t"),
    Command(
        "columns", "Choose the columns", _choose_columns, "C", "[COLUMN…|all]", suggest=gpu_columns
    ),
)  # fmt: skip

DEVICE_COMMANDS = (Command("device-span", SPAN, _next_span, "t", hint="time"),)
