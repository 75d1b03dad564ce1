"""The contract between the frame and a view, the screen's views, and the stage they appear on.

A view's place in `VIEWS` gives it its number key. The classes are named by text: each is imported
and made when it is first visited, so that the first frame waits for no view but the one it shows.
The frame calls `show` whenever there is something new to draw while a view is in sight.
"""

import asyncio
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, cast

from textual.containers import Container
from textual.widget import Widget

from gputui.tui.commands.command_registry import Command, Registry
from gputui.tui.filter import Fields, FilterError
from gputui.tui.rendering import Line
from gputui.tui.watched import Watched
from gputui.tui.widgets import Drawing

if TYPE_CHECKING:
    from gputui.tui.app import ScreenApp


class View(Widget):
    """One of the screen's views.

    A subclass names its commands; those commands are called with the view. `self.screen_app`
    is the frame: `ask(request)`, `confirm(…)`, `say(text)`, `go_to(view, key)`, `watched`.
    """

    DEFAULT_CSS = "View { height: 1fr; width: 1fr; }"
    NAME: ClassVar[str]
    COMMANDS: ClassVar[tuple[Command, ...]] = ()
    FILTER: ClassVar[Fields[Any] | None] = None
    """What its filter can ask for, where it has one."""
    filter_text = ""
    """The filter as it was typed."""

    @property
    def screen_app(self) -> "ScreenApp":
        """The frame this view is in."""
        return cast("ScreenApp", self.app)

    def on_resize(self) -> None:
        """Draw for the new size."""
        self.screen_app.redraw()

    def show(self, watched: Watched) -> None:
        """Draw the present state; called when the view is visible and something has changed."""

    def crumbs(self) -> Line:
        """Describe the rows in sight, for the line below the body: filter, order, how many."""
        return ()

    def cells(self) -> list[list[str]]:
        """Return its content as a table, titles first; empty for other views."""
        return []

    def text(self) -> str:
        """Return all that it shows as text, also what would have to be scrolled to."""
        shown = [
            each
            for each in self.query("*")
            if isinstance(each, Drawing)
            and all(node.display for node in each.ancestors_with_self if isinstance(node, Widget))
        ]
        lines = [line for drawing in shown for line in drawing.lines]
        return "".join("".join(text for text, _ in line).rstrip() + "\n" for line in lines)

    def go_to(self, key: str) -> None:
        """Show the item with this key: a host, a worker, a run, or a GPU's slot."""

    def targets(self) -> tuple[str, ...]:
        """Return the targets of a change: keys of workers, slots or hosts that are marked,
        else the one under the cursor."""
        return ()

    def copied(self) -> str:
        """Return the text that `y` copies: of the marked rows, or the one under the cursor."""
        return " ".join(self.targets())

    @property
    def column_names(self) -> tuple[str, ...]:
        """The columns that it can be sorted by."""
        return ()

    def narrow(self, text: str) -> None:
        """Show only what matches a filter, all with ""; raises FilterError."""

    def filter(self, text: str) -> str:
        """Take a filter's text; return its mistake, or ""."""
        try:
            self.narrow(text.strip())
        except FilterError as error:
            return str(error)
        self.filter_text = text.strip()
        self.screen_app.draw()  # at once, for the next key acts on what is left, and while paused
        return ""

    def back(self) -> bool:
        """Undo the innermost thing (`esc`), here the filter; return whether there was one."""
        if not self.filter_text:
            return False
        self.filter("")
        return True

    def focus_body(self) -> None:
        """Put the focus where keys belong."""
        for child in self.query("*"):
            if child.can_focus and child.display:
                self.take_focus(child)
                return

    def take_focus(self, widget: Widget) -> None:
        """Give a widget the focus at once, before the next key is looked at.

        Textual's `focus` waits until all that is queued is done (seen in Textual 8.2). A view that
        comes into sight as the screen closes has none any more.
        """
        if self.is_attached:
            self.screen.set_focus(widget)


@dataclass(frozen=True, slots=True)
class ViewKind:
    """A view that there is, without importing it."""

    name: str
    key: str
    """The key that brings it into sight; "" for one reached in other ways."""
    location: str
    """`module:Class` below this package."""

    def load(self) -> type[View]:
        """Import and return the view's class."""
        module, _, name = self.location.partition(":")
        kind: type[View] = getattr(import_module(f"{__name__}.{module}"), name)
        return kind


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
        self._was_back = False
        self.wanted = ""
        """The name of the view that was asked for last."""

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
        view = self._views.get(name) or await self._make(name)
        if name == self.wanted:
            for other in self._views.values():
                other.display = other is view
            if name != self.current:
                self.came_from, self.current = self.current, name
        return view

    async def _make(self, name: str) -> View:
        kind = next(kind for kind in VIEWS if kind.name == name)
        view = self._views[name] = kind.load()()
        view.display = False
        self.know(kind)
        await self.mount(view)
        return view

    def know(self, kind: ViewKind) -> None:
        """Take in a view's commands, once."""
        if not any(command.view == kind.name for command in self._registry):
            self._registry.add(kind.load().COMMANDS, kind.name)

    async def get_ready(self) -> None:
        """Make the fleet's view, and take in every view's commands, while nobody waits for them.

        In steps, between which snapshots are taken and keys answered.
        """
        if "fleet" not in self._views and self.is_attached:  # else the screen has ended already
            await self._make("fleet")
        for kind in VIEWS:
            self.know(kind)
            await asyncio.sleep(0)

    def way_back(self) -> str:
        """Return the view to go back to: once the one that was left last, then the fleet."""
        if self.current == "fleet":
            return ""
        self._was_back = not self._was_back
        return self.came_from if self._was_back and self.came_from else "fleet"
