"""The lines around the body: status and banner above, breadcrumb and keys below.

The keys are one line of text: Textual's `Footer` mounts a widget for each, 32 ms whenever a key
begins or ceases to do something, as it does with most moves of the cursor.
"""

import time
from collections.abc import Collection, Iterable
from textwrap import wrap

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.message import Message

from gputui.tui.commands.command_registry import Command
from gputui.tui.rendering import frame
from gputui.tui.rendering.format import safe
from gputui.tui.rendering.lines import Line, fitted, whole_fields
from gputui.tui.views import VIEWS, View
from gputui.tui.watched import Watched
from gputui.tui.widgets.pane import Pane

SAID_FOR_S = 6.0
MOST_TROUBLE, LINES_FOR_TROUBLE = 3, 8
"""Lines of trouble at most, and for how many lines of the terminal each of them may stand."""
MOST_SAID = 4
"""Most lines of a message."""


class Bar(Pane):
    """One line that never has the focus."""

    DEFAULT_CSS = "Bar { height: 1; }"
    can_focus = False


class Keys(Bar):
    """The lines of keys; a click on one of them presses it."""

    class Pressed(Message):
        """A key was clicked, by its name as it is printed on a keyboard."""

        def __init__(self, key: str) -> None:
            super().__init__()
            self.key = key

    def on_click(self, event: events.Click) -> None:
        """Press the key at or before the place of the click."""
        event.stop()
        if key := key_at(self._lines[event.y], event.x):
            self.post_message(self.Pressed(key))


def key_at(line: Line, x: int) -> str:
    """Return the key that a cell of a line of keys belongs to, "" for none.

    >>> line = [("1", "key"), ("fleet", "found"), (" ", ""), (" z", "key"), (" zoom", "dim")]
    >>> key_at(line, 3), key_at(line, 10), key_at(line, 60)
    ('1', 'z', '')
    """
    key, begin = "", 0
    for text, role in line:
        key = text.strip() if role in ("key", "off") else key
        begin += len(text)
        if x < begin:
            return key
    return ""


class TopBars(Vertical):
    """The cluster's state, the fleet's totals, troubles, and a banner."""

    DEFAULT_CSS = "TopBars { height: auto; }"

    def __init__(self) -> None:
        super().__init__()
        self._status, self._totals, self._banner = Bar(), Bar(id="totals"), Bar()
        self._trouble = Bar(id="trouble")
        self._banner.display = self._trouble.display = False
        self._lost = ""

    def compose(self) -> ComposeResult:
        """Lay out the lines."""
        yield self._status
        yield self._totals
        yield self._trouble
        yield self._banner

    def show(self, watched: Watched, *, paused: bool, readonly: bool) -> None:
        """Draw the status, unless the cluster is lost."""
        if self._lost:
            return
        width, height = self.app.size
        line = frame.status_line(watched, width, paused=paused, readonly=readonly)
        self._status.put([whole_fields(line, width)])
        self._totals.display = tall = height >= frame.TOTALS_FROM and watched.snapshot is not None
        if tall:
            self._totals.put([whole_fields(frame.totals_line(watched, width), width)])
        most = max(1, min(MOST_TROUBLE, (height - frame.TOTALS_FROM) // LINES_FOR_TROUBLE))
        lines = frame.trouble_lines(watched, width, most) if tall else []
        self._trouble.display = bool(lines)
        self._trouble.put_whole(lines)

    def lose(self, status: str, sentence: str) -> None:
        """Show in red that the cluster does not answer; take it back with ""."""
        self._lost = status
        if status:
            self._status.put([((fitted(f" {safe(status)}", self.app.size.width), "lost"),)])
            self.warn(sentence)

    def hint(self, text: str) -> None:
        """Show the hint for the next key if nothing is wrong; "" removes it."""
        if not text or not self._banner.display:
            self.warn("")
            self._banner.display = bool(text)
            self._banner.put_whole([((f" {text}", "accent"),)])

    def warn(self, text: str) -> None:
        """Show a banner until it is taken back with ""."""
        self._banner.display = bool(text)
        width = max(1, self.app.size.width - 2)
        lines = [line for each in text.splitlines() for line in wrap(safe(each), width)]
        self._banner.put_whole([((f" {line}", "bad"),) for line in lines])


class BottomBars(Vertical):
    """The view's state or the last message, and the keys that can be pressed."""

    DEFAULT_CSS = "BottomBars { height: auto; }"

    def __init__(self) -> None:
        super().__init__()
        self._crumbs, self._keys = Bar(id="crumbs"), Keys()
        self._said: list[Line] = []
        self._silence_at = 0.0

    def compose(self) -> ComposeResult:
        """Lay out both lines."""
        yield self._crumbs
        yield self._keys

    def show(
        self, view: View | None, current: str, commands: Iterable[Command], dim: Collection[str]
    ) -> None:
        """Draw a view's description and the keys of these commands, some of them dim. `view` is
        None while it is hidden.
        """
        if time.monotonic() >= self._silence_at:
            self._said = []
        self._crumbs.put_whole(self._said or [view.crumbs() if view else ()])
        views = [(kind.key, kind.name) for kind in VIEWS if kind.key]
        keys = frame.keys_lines(commands, views, current, self.app.size, dim)
        self._keys.put_whole(keys)

    def say(self, text: str, *, bad: bool = False) -> None:
        """Show a message for some seconds."""
        role = "warn" if bad else "accent"
        words = safe(text.replace("\n", "; "))
        lines = wrap(words, max(1, self.size.width), max_lines=MOST_SAID, placeholder=" …")
        self._said = [((line, role),) for line in lines]
        self._silence_at = time.monotonic() + SAID_FOR_S
        self._crumbs.put_whole(self._said or [()])

    def hush(self) -> None:
        """Replace the message at the next drawing."""
        self._silence_at = 0.0
