"""The screen's views, by name: each is imported and made when it is first visited, so that the
first frame waits for no view but the one it shows. Its place gives a view its number key.
"""

from dataclasses import dataclass
from importlib import import_module
from typing import Any


@dataclass(frozen=True, slots=True)
class ViewKind:
    """A view that there is, without importing it."""

    name: str
    key: str
    """The key that brings it into sight; "" for one reached in other ways."""
    location: str
    """`module:Class` below this package."""

    def load(self) -> Any:
        """Import and return the view's class."""
        module, _, name = self.location.partition(":")
        return getattr(import_module(f"{__name__}.{module}"), name)


VIEWS = (
    ViewKind("hosts", "0", "lists:HostsView"),
    ViewKind("fleet", "1", "fleet_view:FleetView"),
    ViewKind("workers", "2", "lists:WorkersView"),
    ViewKind("tasks", "3", "tasks_view:TasksView"),
    ViewKind("logs", "4", "logs_view:LogsView"),
    ViewKind("events", "5", "lists:EventsView"),
    ViewKind("runs", "6", "runs_view:RunsView"),
    ViewKind("users", "u", "users_view:UsersView"),
    ViewKind("device", "", "device_view:DeviceView"),
)
