"""The lines around the body: status and banner above it; below it what is shown, and the keys."""

import time
from collections.abc import Iterable

from textual.app import ComposeResult
from textual.containers import Vertical

from gputui.tui import frame
from gputui.tui.commands import Command
from gputui.tui.format import safe
from gputui.tui.pane import Line, Pane
from gputui.tui.view import View
from gputui.tui.views import VIEWS
from gputui.tui.watched import Watched

SAID_FOR_S = 6.0


class Bar(Pane):
    """One line that never has the focus."""

    DEFAULT_CSS = "Bar { height: 1; }"
    can_focus = False


class TopBars(Vertical):
    """How the cluster is, and a banner while something is wrong."""

    DEFAULT_CSS = "TopBars { height: auto; }"

    def __init__(self) -> None:
        super().__init__()
        self._status, self._banner = Bar(), Bar()
        self._banner.display = False

    def compose(self) -> ComposeResult:
        """Lay out both lines."""
        yield self._status
        yield self._banner

    def show(self, watched: Watched, *, paused: bool, readonly: bool) -> None:
        """Draw the status."""
        self._status.put([frame.status_line(watched, paused=paused, readonly=readonly)])

    def warn(self, text: str) -> None:
        """Show a banner until it is taken back with ""."""
        self._banner.display = bool(text)
        self._banner.put([((f" {safe(text)}", "bad"),)])


class BottomBars(Vertical):
    """What the view shows, or what was just said; and the keys that can be pressed."""

    DEFAULT_CSS = "BottomBars { height: auto; }"

    def __init__(self) -> None:
        super().__init__()
        self._crumbs, self._keys = Bar(), Bar()
        self._said: Line = ()
        self._silence_at = 0.0

    def compose(self) -> ComposeResult:
        """Lay out both lines."""
        yield self._crumbs
        yield self._keys

    def show(self, view: View | None, current: str, commands: Iterable[Command]) -> None:
        """Draw what a view says of itself, and the keys of these commands.

        `view` is None where it is not to be seen.
        """
        if time.monotonic() >= self._silence_at:
            self._said = ()
        self._crumbs.put([self._said or (view.crumbs() if view else ())])
        views = [(kind.key, kind.name) for kind in VIEWS if kind.key]
        keys = frame.keys_line(commands, views, current, self.size.width)
        self._keys.put([keys])

    def say(self, text: str, *, bad: bool = False) -> None:
        """Tell of something for some seconds; what is drawn after that takes its place."""
        self._said = ((safe(text.replace("\n", "; ")), "warn" if bad else "accent"),)
        self._silence_at = time.monotonic() + SAID_FOR_S
        self._crumbs.put([self._said])
