"""Lines of a log book on the screen, at the place that a pager keeps; a person alone moves it."""

from datetime import datetime

from rich.cells import cell_len, chop_cells
from textual.message import Message

from gputui.tui.filter import Fields, parse
from gputui.tui.rendering.format import safe
from gputui.tui.rendering.lines import Line, Part, fitted
from gputui.tui.widgets.logbook import Level, LogBook, LogLine, Matcher, Pager
from gputui.tui.widgets.pane import MOVES, Moving, Pane

LEVELS = {Level.PLAIN: (" ", ""), Level.WARNING: ("▴", "warn"), Level.ERROR: ("✖", "bad")}
"""How serious a line is: by shape and role."""
NAME_MOST = 24


LOG_FILTER: Fields[LogLine] = Fields(
    everything=lambda line: f"{line.worker} {line.logger} {line.text}",
    words={
        "worker": lambda line: line.worker,
        "level": lambda line: line.level.value,
        "logger": lambda line: line.logger,
    },
    choices={"level": tuple(Level)},
)


class LogPane(Moving, Pane):
    """Lines of a log book, drawn as a pager sees them."""

    BINDINGS = MOVES

    class Moved(Message):
        """The position or the filter has changed."""

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
        """Draw the new lines of this book; restart for another book."""
        if book is not self._book:
            self._book, self.pager = book, Pager(book)
            self.choose(self.worker, self.filter_text)
        self.draw()

    def choose(self, worker: str | None, filter_text: str) -> None:
        """Show one worker's lines, or all, that match; raises FilterError."""
        wanted: Matcher | None = parse(filter_text, LOG_FILTER) if filter_text.strip() else None
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
        """Draw the pager's lines."""
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

    @property
    def lines(self) -> list[Line]:
        """Every line that matches."""
        matching = map(self.pager.line, range(self.pager.count))
        return [row for line in matching for row in self._rows(line)]

    def _rows(self, line: LogLine) -> list[Line]:
        head, role = self._head(line), LEVELS[line.level][1]
        indent = sum(len(text) for text, _ in head)
        width = max(20, self.size.width - indent)
        if not self.wrapped:
            cut = line.text if cell_len(line.text) <= width else fitted(line.text, width)
            return [[*head, *self._marked(cut, role)]]
        first, *others = chop_cells(line.text, width) or [""]
        return [
            [*head, *self._marked(first, role)],
            *([(" " * indent, ""), *self._marked(text, role)] for text in others),
        ]

    def _head(self, line: LogLine) -> list[Part]:
        head: list[Part] = []
        if self.timed:
            head.append((f"{datetime.fromtimestamp(line.at):%H:%M:%S} ", "dim"))
        if self.worker is None:
            width = min(NAME_MOST, self._book.widest_name)
            head.append((fitted(safe(line.worker), width) + " ", "accent"))
        shape, role = LEVELS[line.level]
        return [*head, (shape + " ", role)]

    def _marked(self, text: str, role: str) -> list[Part]:
        """Return a text with the matches highlighted."""
        wanted = self.search_text.lower()
        place = text.lower().find(wanted) if wanted else -1
        if place < 0:
            return [(text, role)]
        end = place + len(wanted)
        return [(text[:place], role), (text[place:end], "found"), (text[end:], role)]

    def find(self, forward: bool) -> bool:
        """Go to the next match; return whether there is one."""
        wanted = self.search_text.lower()
        found = bool(wanted) and self.pager.seek(lambda one: wanted in one.text.lower(), forward)
        self.move()
        return found

    @property
    def rows_seen(self) -> int:
        """Lines that are seen at once."""
        return self.size.height

    def action_move(self, rows: int) -> None:
        """Move by lines; up stops following."""
        self.pager.scroll(rows)
        self.move()

    def action_end(self, last: bool) -> None:
        """Go to the newest line and follow, or to the oldest."""
        if last:
            self.pager.follow()
        else:
            self.pager.home()
        self.move()

    def on_resize(self) -> None:
        """Show as many lines as there is room for."""
        super().on_resize()
        self.draw()
