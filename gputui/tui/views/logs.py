"""The logs view: what all workers print, merged, or one worker's; it moves only when told to."""

from collections.abc import Callable
from datetime import datetime
from typing import ClassVar

from rich.cells import chop_cells
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.message import Message

from gputui.tui.commands import Command
from gputui.tui.filter import Fields, FilterError, parse
from gputui.tui.format import safe
from gputui.tui.logbook import Level, LogBook, LogLine, Matcher, Pager
from gputui.tui.pane import Line, Pane, Part, fitted
from gputui.tui.prompt import Asking
from gputui.tui.view import View
from gputui.tui.watched import Watched

LEVEL_ROLES = {Level.PLAIN: "", Level.WARNING: "warn", Level.ERROR: "bad"}
INDENT = 2
"""Of the rows after the first that a wrapped line takes."""
WHEEL_LINES = 3


FILTER: Fields[LogLine] = Fields(
    everything=lambda line: f"{line.worker} {line.text}",
    words={"worker": lambda line: line.worker, "level": lambda line: line.level.value},
)


class LogPane(Pane):
    """Lines of a log book, drawn as a pager sees them."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down,j", "move(1)", show=False),
        Binding("up,k", "move(-1)", show=False),
        Binding("pagedown", "page(1)", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("home,g", "home", show=False),
        Binding("end,G", "end", show=False),
    ]

    class Moved(Message):
        """The place in the lines, or what is shown of them, is another."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._book = LogBook(safe)
        self.pager = Pager(self._book)
        self.worker: str | None = None
        self.filter_text = ""
        self.search_text = ""
        self.wrapped = False
        self.timed = True

    def read(self, book: LogBook) -> None:
        """Draw what is new in this book; another one than before is begun anew."""
        if book is not self._book:
            self._book, self.pager = book, Pager(book)
            self.choose(self.worker, self.filter_text)
        self.draw()

    def choose(self, worker: str | None, filter_text: str) -> None:
        """Show one worker's lines, or all, that match; raises FilterError."""
        wanted: Matcher | None = parse(filter_text, FILTER) if filter_text.strip() else None
        self.worker, self.filter_text = worker, filter_text.strip()
        if worker is None:
            self.pager.filter(wanted)
        else:
            self.pager.filter(
                lambda line: line.worker == worker and (wanted is None or wanted(line))
            )
        self.move()

    def move(self) -> None:
        """Draw another place, and tell of it."""
        self.draw()
        self.post_message(self.Moved())

    def draw(self) -> None:
        """Draw what the pager sees."""
        height = self.size.height
        if not height:
            return
        self.pager.height = height
        self.pager.look()
        lines = self.pager.visible()
        if not lines:
            self.put([[("no line matches" if self.filter_text else "no lines yet", "dim")]])
            return
        rows = [row for line in lines for row in self._rows(line)]
        self.put(rows[-height:] if self.pager.following else rows[:height])

    def _rows(self, line: LogLine) -> list[Line]:
        head = self._head(line)
        role = LEVEL_ROLES[line.level]
        if not self.wrapped:
            return [[*head, *self._marked(line.text, role)]]
        width = max(20, self.size.width - sum(len(text) for text, _ in head))
        first, *rest = chop_cells(line.text, width) or [""]
        others = chop_cells("".join(rest), max(20, self.size.width - INDENT)) if rest else []
        return [
            [*head, *self._marked(first, role)],
            *([(" " * INDENT, ""), *self._marked(text, role)] for text in others),
        ]

    def _head(self, line: LogLine) -> list[Part]:
        head: list[Part] = []
        if self.timed:
            head.append((f"{datetime.fromtimestamp(line.at):%H:%M:%S} ", "dim"))
        if self.worker is None:
            width = min(24, max(13, self.size.width // 6))
            head.append((fitted(line.worker, width) + " ", "accent"))
        return head

    def _marked(self, text: str, role: str) -> list[Part]:
        """Return a text with what is searched for standing out."""
        wanted = self.search_text.lower()
        place = text.lower().find(wanted) if wanted else -1
        if place < 0:
            return [(text, role)]
        end = place + len(wanted)
        return [(text[:place], role), (text[place:end], "found"), (text[end:], role)]

    def find(self, forward: bool) -> bool:
        """Go to the next line that holds what is searched for; return whether there is one."""
        wanted = self.search_text.lower()
        found = bool(wanted) and self.pager.seek(lambda one: wanted in one.text.lower(), forward)
        self.move()
        return found

    def action_move(self, lines: int) -> None:
        """Move by lines; up stops following."""
        self.pager.scroll(lines)
        self.move()

    def action_page(self, pages: int) -> None:
        """Move by what is seen at once."""
        self.action_move(pages * max(1, self.size.height - 1))

    def action_home(self) -> None:
        """Go to the oldest line."""
        self.pager.home()
        self.move()

    def action_end(self) -> None:
        """Go to the newest line and follow."""
        self.pager.follow()
        self.move()

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Move up with the wheel."""
        event.stop()
        self.action_move(-WHEEL_LINES)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Move down with the wheel."""
        event.stop()
        self.action_move(WHEEL_LINES)

    def on_resize(self) -> None:
        """Show as many lines as there is room for."""
        super().on_resize()
        self.draw()


class LogsView(View):
    """Merged logs under a filter, with follow, wrap, times and search."""

    NAME = "logs"

    def __init__(self) -> None:
        super().__init__()
        self.pane = LogPane()
        self._from_device = False

    def compose(self) -> ComposeResult:
        """Be one pane."""
        yield self.pane

    def show(self, watched: Watched) -> None:
        """Ask for lines when first in sight, and draw what came."""
        self.screen_app.follow_logs()
        self.pane.read(watched.logs)

    def on_log_pane_moved(self) -> None:
        """Say where this is."""
        self.screen_app.draw_crumbs()

    def crumbs(self) -> Line:
        """Say whose lines these are, how many, and whether they follow."""
        pager, pane = self.pane.pager, self.pane
        place: Part = ("following", "good")
        if not pager.following:
            place = (f"stopped · {pager.below:,} below · f follows", "warn")
        parts: list[Part] = [(f"{pane.worker or 'all workers'} · {pager.count:,} lines · ", "")]
        parts.append(place)
        if pane.search_text:
            parts.append((f" · search {pane.search_text}", "found"))
        return parts

    def go_to(self, key: str) -> None:
        """Show one worker's lines, or all with ""; `esc` then leads back to its device."""
        self._from_device = self.screen_app.came_from == "device"
        self.pane.pager.follow()
        self.pane.choose(key or None, self.pane.filter_text)

    def filter(self, text: str) -> str:
        """Show only lines that match; return what is wrong with the filter, or ""."""
        try:
            self.pane.choose(self.pane.worker, text)
        except FilterError as error:
            return str(error)
        return ""

    @property
    def filter_text(self) -> str:
        """The filter as it was typed."""
        return self.pane.filter_text

    def back(self) -> bool:
        """Let go of the search, then of the worker, then of the filter."""
        pane = self.pane
        if pane.search_text:
            pane.search_text = ""
        elif pane.worker is not None:
            worker = pane.worker
            pane.choose(None, pane.filter_text)
            if self._from_device:
                self.screen_app.go_to("device", worker)
        elif pane.filter_text:
            pane.choose(None, "")
        else:
            return False
        pane.move()
        return True

    def search(self, text: str) -> None:
        """Look for a text, upwards first: what was just read is the likelier; ask where none."""
        if not text:
            app = self.screen_app
            asking = Asking("search", self.search, cancelled=app.focus_view)
            app.prompt.ask(asking, self.pane.search_text, return_to=app.focus_view)
            return
        self.pane.search_text = text
        if not (self.pane.find(forward=False) or self.pane.find(forward=True)):
            self.screen_app.say(f"no line holds '{text}'")
        self.pane.move()

    def find(self, forward: bool) -> None:
        """Go to the next match; say so when there is none."""
        if not self.pane.search_text:
            self.screen_app.say("nothing is searched for: :search TEXT")
        elif not self.pane.find(forward):
            self.screen_app.say("no further line " + ("below" if forward else "above"))

    def follow(self) -> None:
        """Follow the newest lines, or stay."""
        self.pane.pager.follow(not self.pane.pager.following)
        self.pane.move()

    def wrap(self) -> None:
        """Wrap long lines, or cut them."""
        self.pane.wrapped = not self.pane.wrapped
        self.pane.move()

    def times(self) -> None:
        """Show when each line came, or not."""
        self.pane.timed = not self.pane.timed
        self.pane.move()


def _do(act: Callable[[LogsView], None]) -> Callable[[LogsView, str], None]:
    """Return what a command calls that takes nothing typed."""
    return lambda view, _argument: act(view)


LogsView.COMMANDS = (
    Command(
        "follow",
        "Follow the newest lines, or stay where you are",
        _do(LogsView.follow),
        ("f",),
        "logs",
        hint="follow",
    ),
    Command(
        "wrap", "Wrap long lines, or cut them", _do(LogsView.wrap), ("w",), "logs", hint="wrap"
    ),
    Command(
        "times",
        "Show when each line came, or not",
        _do(LogsView.times),
        ("t",),
        "logs",
        hint="times",
    ),
    Command(
        "search",
        "Go to the lines that hold a text",
        LogsView.search,
        ("s",),
        "logs",
        usage="TEXT",
        hint="search",
    ),
    Command("next", "Go to the next match", lambda v, _: v.find(True), ("n",), "logs"),
    Command("previous", "Go to the match before", lambda v, _: v.find(False), ("N",), "logs"),
)
