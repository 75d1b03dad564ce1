"""The logs view: what all workers print, merged, or one worker's; a person alone moves it.

While it does not follow, its place is a line's number, so that neither new lines nor old ones that
are dropped shift what is being read.
"""

import re
from bisect import bisect_left
from datetime import datetime
from operator import attrgetter
from typing import ClassVar

from rich.cells import chop_cells

from gputui.model.plain_text import many
from gputui.model.snapshot import Severity
from gputui.tui.commands import Command
from gputui.tui.filter import Fields, Matches, parse
from gputui.tui.frame import View
from gputui.tui.rendering import Line, Part, fitted
from gputui.tui.rendering.format import safe
from gputui.tui.watched import Watched
from gputui.tui.widgets import MOVES, Moving, Pane
from gputui.tui.widgets.logbook import LogBook, LogLine

LEVELS = {
    Severity.INFO: (" ", ""),
    Severity.WARNING: ("▴", "warn"),
    Severity.ERROR: ("✖", "bad"),
}
"""How serious a line is: by shape and role."""
NAME_MOST = 24


LOG_FILTER: Fields[LogLine] = Fields(
    everything=lambda line: f"{line.worker} {line.logger} {line.text}",
    words={
        "worker": lambda line: line.worker,
        "level": lambda line: line.level.value,
        "logger": lambda line: line.logger,
    },
    choices={"level": tuple(Severity)},
)


MARKED_IN = re.compile(r"[!:*?<>=]")
"""In a term of a filter that is no plain text."""


class LogsView(View, Moving, Pane, can_focus=True):
    """Merged logs under a filter, with follow and search."""

    NAME = "logs"
    FILTER = LOG_FILTER
    BINDINGS = MOVES

    def __init__(self) -> None:
        super().__init__()
        self._book = LogBook()
        self._matches: Matches[LogLine] = parse("", LOG_FILTER)
        self.matching: list[LogLine] = []
        """The lines that match, as they were drawn last."""
        self.worker: str | None = None
        """Whose lines are shown alone."""
        self.search_text = ""
        self.following = True
        self._top = 0
        """The number of the line at the top, while not following."""

    def show(self, watched: Watched) -> None:
        """Draw the lines at the present place; follow another book from its end."""
        if watched.logs is not self._book:
            self._book, self.following = watched.logs, True
        lines = (line for line in self._book.lines if self.worker in (None, line.worker))
        self.matching = [line for line in lines if self._matches(line)]
        top, height = self.top, self.rows_seen
        rows = [row for line in self.matching[top : top + height] for row in self._rows(line)]
        nothing: Line = [("no line matches" if self.filter_text else "no lines yet", "dim")]
        self.put((rows[-height:] if self.following else rows[:height]) or [nothing])

    def move(self) -> None:
        """Draw another place, and say which."""
        self.show(self.screen_app.watched)
        self.screen_app.draw_crumbs()

    @property
    def top(self) -> int:
        """The index among the matching lines of the one at the top."""
        if self.following:
            return max(0, len(self.matching) - self.rows_seen)
        return bisect_left(self.matching, self._top, key=attrgetter("number"))

    @property
    def lines(self) -> list[Line]:
        """Every line that matches."""
        return [row for line in self.matching for row in self._rows(line)]

    def _rows(self, line: LogLine) -> list[Line]:
        shape, role = LEVELS[line.level]
        head: list[Part] = [(f"{datetime.fromtimestamp(line.at):%H:%M:%S} ", "dim")]
        if self.worker is None:
            width = min(NAME_MOST, self._book.widest_name)
            head.append((fitted(safe(line.worker), width) + " ", "accent"))
        head.append((shape + " ", role))
        indent = sum(len(text) for text, _ in head)
        width = max(20, self.size.width - indent)
        first, *others = chop_cells(line.text, width) or [""]
        rest = ([(" " * indent, ""), *self._marked(text, role)] for text in others)
        return [[*head, *self._marked(first, role)], *rest]

    def _marked(self, text: str, role: str) -> list[Part]:
        """Return a text with the match highlighted."""
        place = text.lower().find(self.search_text.lower()) if self.search_text else -1
        if place < 0:
            return [(text, role)]
        end = place + len(self.search_text)
        return [(text[:place], role), (text[place:end], "found"), (text[end:], role)]

    def find(self, forward: bool) -> None:
        """Bring the next match to the top; say so if no line matches."""
        wanted, top = self.search_text.lower(), self.top
        ahead = range(top + 1, len(self.matching)) if forward else range(top - 1, -1, -1)
        places = (place for place in ahead if wanted in self.matching[place].text.lower())
        if not wanted:
            self.screen_app.say("nothing to search for: / filters, then esc, n and N")
        elif (found := next(places, None)) is not None:
            self.stay(found)
        else:
            self.screen_app.say("no more matches " + ("below" if forward else "above"))

    def stay(self, index: int) -> None:
        """Stay at a line, by its index among those that match."""
        index = max(0, min(index, len(self.matching) - 1))
        self.following = False
        self._top = self.matching[index].number if self.matching else 0
        self.move()

    @property
    def rows_seen(self) -> int:
        """Lines that are seen at once."""
        return self.size.height

    def action_move(self, rows: int) -> None:
        """Move by lines; up stops following."""
        if rows < 0 or not self.following:
            self.stay(min(self.top + rows, len(self.matching) - self.rows_seen))

    def action_end(self, last: bool) -> None:
        """Go to the newest line and follow, or to the oldest."""
        self.stay(0)
        self.following = last
        self.move()

    def cells(self) -> list[list[str]]:
        """Return every matching line: time, worker, level, text."""
        rows = [[str(one.at), one.worker, one.level.value, one.text] for one in self.matching]
        return [["at", "worker", "level", "text"], *rows]

    def crumbs(self) -> Line:
        """Say whose lines these are, how many, and whether they follow."""
        below = max(0, len(self.matching) - self.top - self.rows_seen)
        stopped = f"stopped · {below:,} below · G follows"
        parts = [
            (f"{self.worker or 'all workers'} · {many(len(self.matching), 'line')} · ", ""),
            ("following", "good") if self.following else (stopped, "warn"),
        ]
        parts += [(f"  /{self.filter_text}", "accent")] if self.filter_text else []
        parts += [(f" · search {self.search_text}", "found")] if self.search_text else []
        return parts

    def go_to(self, key: str) -> None:
        """Show one worker's lines, or all with ""."""
        self.following, self.worker = True, key or None
        self.move()

    def narrow(self, text: str) -> None:
        """Show only matching lines, and highlight the matches; raises UsageError."""
        self._matches = parse(text, LOG_FILTER)
        if words := [word for word in text.split() if not MARKED_IN.search(word)]:
            self.search_text = words[0]

    def back(self) -> bool:
        """Clear the filter, then the search, then the worker."""
        if self.filter_text:
            return super().back()
        if self.search_text:
            self.search_text = ""
        elif self.worker is not None:
            self.worker = None
            self.move()
            return self.screen_app.trail[-1:] != ["device"]
        else:
            return False
        self.move()
        return True

    COMMANDS: ClassVar[tuple[Command, ...]] = (
        Command("next", "Go to the next match", lambda view: view.find(True), "n"),
        Command("previous", "Go to the match before", lambda view: view.find(False), "N"),
    )  # fmt: skip
