"""The screen's views, one module each, and the stage on which one of them is in sight.

A view's place here gives it its number key. `VIEWS` names the classes by text: each is imported
and made when it is first visited, so that the first frame waits for no view but the one it shows.
"""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module

from textual.containers import Container

from gputui.tui.commands.command_registry import Registry
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
    ViewKind("hosts", "0", "start_view:StartView"),
    ViewKind("fleet", "1", "fleet_view:FleetView"),
    ViewKind("workers", "2", "workers_view:WorkersView"),
    ViewKind("tasks", "3", "tasks_view:TasksView"),
    ViewKind("logs", "4", "logs_view:LogsView"),
    ViewKind("events", "5", "events_view:EventsView"),
    ViewKind("runs", "6", "runs_view:RunsView"),
    ViewKind("device", "", "device_view:DeviceView"),
)


class ViewSwitcher(Container):
    """All views that were visited; their commands are added to the registry."""

    DEFAULT_CSS = "ViewSwitcher { height: 1fr; }"

    def __init__(self, registry: Registry) -> None:
        super().__init__()
        self.current = ""
        """The name of the view in sight."""
        self.came_from = ""
        """The name of the view that was in sight before."""
        self._registry = registry
        self._views: dict[str, View] = {}
        self._known: set[str] = set()
        self._was_back = False
        self.wanted = ""
        """The name of the view that was asked for last."""

    def __iter__(self) -> Iterator[View]:
        return iter(self._views.values())

    @property
    def view(self) -> View | None:
        """The view in sight."""
        return self._views.get(self.current)

    def visited(self, name: str) -> View:
        """Return a view that was visited; raises KeyError for another."""
        return self._views[name]

    async def bring(self, name: str) -> View:
        """Bring a view into sight; where two are brought at once, the one asked for last stays."""
        self.wanted = name
        view = self._views.get(name) or await self._make(_kind(name))
        if name == self.wanted:
            for other in self:
                other.display = other is view
            if name != self.current:
                self.came_from, self.current = self.current, name
        return view

    async def _make(self, kind: ViewKind) -> View:
        view = self._views[kind.name] = kind.load()()
        view.display = False
        self.know(kind)
        await self.mount(view)
        return view

    def know(self, kind: ViewKind) -> None:
        """Take in a view's commands, once."""
        if kind.name not in self._known:
            self._known.add(kind.name)
            self._registry.add(kind.load().COMMANDS, kind.name)

    async def get_ready(self) -> None:
        """Make the fleet's view, and take in every view's commands, while nobody waits for them.

        In steps, between which snapshots are taken and keys answered.
        """
        if "fleet" not in self._views and self.is_attached:  # else the screen has ended already
            await self._make(_kind("fleet"))
        for kind in VIEWS:
            self.know(kind)
            await asyncio.sleep(0)

    def way_back(self) -> str:
        """Return the view to go back to: once the one that was left last, then the fleet."""
        if self.current == "fleet":
            return ""
        self._was_back = not self._was_back
        return self.came_from if self._was_back and self.came_from else "fleet"


def _kind(name: str) -> ViewKind:
    return next(kind for kind in VIEWS if kind.name == name)
