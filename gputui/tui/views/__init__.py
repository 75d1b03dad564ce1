"""The screen's views, one module each; made when they are first visited.

A view's place here gives it its number key. `VIEWS` names the classes by text, so that the
first frame waits for no view but the one it shows.
"""

from dataclasses import dataclass
from importlib import import_module

from gputui.tui.views.view import View


@dataclass(frozen=True, slots=True)
class ViewKind:
    """A view that there is, without importing it."""

    name: str
    key: str
    """The number key that brings it into sight; "" for one reached in other ways."""
    location: str
    """`module:Class` below this package."""

    def load(self) -> type[View]:
        """Import and return the view's class."""
        module, _, name = self.location.partition(":")
        kind: type[View] = getattr(import_module(f"{__name__}.{module}"), name)
        return kind


VIEWS = (
    ViewKind("launch", "0", "start:StartView"),
    ViewKind("fleet", "1", "fleet.fleet:FleetView"),
    ViewKind("workers", "2", "workers:WorkersView"),
    ViewKind("tasks", "3", "tasks:TasksView"),
    ViewKind("logs", "4", "logs:LogsView"),
    ViewKind("events", "5", "events:EventsView"),
    ViewKind("runs", "6", "runs:RunsView"),
    ViewKind("device", "", "device:DeviceView"),
)
