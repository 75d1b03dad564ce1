"""The contract between the frame and a view, for `tui/views/`.

The frame makes a view when it is first visited, calls `show` whenever there is something new to
draw while it is in sight, and hands it every unasked message whether in sight or not.
"""

from typing import TYPE_CHECKING, Any, ClassVar, cast

from textual.widget import Widget

from gputui.tui.commands.command_registry import Command
from gputui.tui.filter import Fields, FilterError
from gputui.tui.rendering.lines import Line
from gputui.tui.watched import Watched
from gputui.tui.widgets.pane import Drawing

if TYPE_CHECKING:
    from gputui.protocol.frontend import ToFrontend
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

    def take(self, message: "ToFrontend") -> None:
        """Take an unasked message (`LogLines`, `EventHappened`, …), in sight or not."""

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
        self.screen_app.redraw()
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
