"""The screen's views, by name: each is imported and made when it is first visited, so that the
first frame waits for no view but the one it shows.
"""

from pkgutil import resolve_name
from typing import Any

VIEWS = {
    "hosts": ("0", "lists:HostsView"),
    "fleet": ("1", "fleet_view:FleetView"),
    "workers": ("2", "lists:WorkersView"),
    "tasks": ("3", "tasks_view:TasksView"),
    "logs": ("4", "logs_view:LogsView"),
    "events": ("5", "lists:EventsView"),
    "runs": ("6", "runs_view:RunsView"),
    "users": ("u", "lists:UsersView"),
    "device": ("", "device_view:DeviceView"),
}
"""View → its key, "" where it is reached in other ways, and `module:Class` below this package."""


def load_view(name: str) -> Any:
    """Import and return a view's class."""
    return resolve_name(f"{__name__}.{VIEWS[name][1]}")
