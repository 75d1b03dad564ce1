"""The commands of the fleet view, called with it."""

from typing import Any

from gputui.tui.commands.command_registry import Command
from gputui.tui.completion import columns, gpu_columns
from gputui.tui.views.fleet.selection import Zoom


def _unsorted(view: Any) -> str:
    of_hosts = view.zoom is Zoom.HOST
    order = view.selection.hosts_sorted_by if of_hosts else view.selection.sorted_by
    return "" if order else "it is sorted by host"


def _ungrouped(view: Any) -> str:
    if view.zoom is not Zoom.GPU:
        return f"there is nothing to fold in the {view.zoom.value} zoom"
    return "it is not sorted by host" if view.selection.sorted_by else ""


FLEET_COMMANDS = (
    Command("closer", "Look closer", lambda v, _: v.zoom_by(-1), ("z",), "fleet", hint="zoom"),
    Command("farther", "Look from farther", lambda v, _: v.zoom_by(1), ("Z",), "fleet"),
    Command("mark", "Mark or unmark", lambda v, _: v.mark(), ("space",), "fleet", hint="mark"),
    Command(
        "fold",
        "Fold a host, or unfold it",
        lambda v, _: v.fold(),
        ("f",),
        "fleet",
        unavailable=_ungrouped,
    ),
    Command(
        "fold-all",
        "Fold all hosts, or unfold them",
        lambda v, _: v.fold_all(),
        ("F",),
        "fleet",
        unavailable=_ungrouped,
    ),
    Command(
        "sort",
        "Sort by a column",
        lambda v, name: v.sort(name),
        ("s",),
        "fleet",
        "[COLUMN]",
        "sort",
        suggest=columns,
    ),
    Command(
        "reverse",
        "Turn the order around",
        lambda v, _: v.reverse(),
        ("r",),
        "fleet",
        unavailable=_unsorted,
    ),
    Command(
        "metric",
        "Colour the heat by utilisation, memory, power, temperature, last task",
        lambda v, _: v.next_metric(),
        ("m",),
        "fleet",
    ),
    Command(
        "outlier",
        "Go to the next alarm or outlier",
        lambda v, _: v.next_outlier(),
        ("o",),
        "fleet",
    ),
    Command(
        "span",
        "Go through 2 minutes, 10 minutes and an hour of the graphs",
        lambda v, _: v.next_span(),
        ("t",),
        "fleet",
    ),
    Command(
        "columns",
        "Choose the columns",
        lambda v, names: v.choose_columns(names),
        ("C",),
        "fleet",
        usage="[COLUMN…|all]",
        suggest=gpu_columns,
    ),
)

DEVICE_COMMANDS = (
    Command(
        "device-span",
        "Go through 2 minutes, 10 minutes and an hour of the graphs",
        lambda v, _: v.next_span(),
        ("t",),
        "device",
        hint="time",
    ),
)
