"""The logs view: what all workers print, merged, or one worker's; a person alone moves it."""

import re
from typing import ClassVar

from textual.app import ComposeResult
from textual.content import Content

from gputui.errors import HeadError
from gputui.tui.commands.command_registry import Command
from gputui.tui.dialogs.modal import Chooser
from gputui.tui.filter import no_such
from gputui.tui.rendering.format import safe
from gputui.tui.rendering.lines import Line, Part
from gputui.tui.views.view import View
from gputui.tui.watched import Watched
from gputui.tui.widgets.log_pane import LOG_FILTER, LogPane

MARKED_IN = re.compile(r"[!:*?<>=]")
"""In a term of a filter that is no plain text."""


class LogsView(View):
    """Merged logs under a filter, with follow, wrap, times and search."""

    NAME = "logs"
    FILTER = LOG_FILTER

    def __init__(self) -> None:
        super().__init__()
        self.pane = LogPane()
        self._from_device = False

    def compose(self) -> ComposeResult:
        """Lay out one pane."""
        yield self.pane

    def show(self, watched: Watched) -> None:
        """Ask for lines when first in sight, and draw what came."""
        self.screen_app.head.follow_logs()
        self.pane.read(watched.logs)

    def cells(self) -> list[list[str]]:
        """Return every matching line: time, worker, level, text."""
        lines = map(self.pane.pager.line, range(self.pane.pager.count))
        rows = [[str(one.at), one.worker, one.level.value, one.text] for one in lines]
        return [["at", "worker", "level", "text"], *rows]

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
        if pane.filter_text:
            parts.append((f"  /{pane.filter_text}", "accent"))
        if pane.search_text:
            parts.append((f" · search {pane.search_text}", "found"))
        return parts

    def go_to(self, key: str) -> None:
        """Show one worker's lines, or all with ""; `esc` then leads back to its device."""
        self._from_device = self.screen_app.stage.came_from == "device"
        self.pane.pager.follow()
        self.pane.choose(key or None, self.pane.filter_text)

    def narrow(self, text: str) -> None:
        """Show only matching lines, and highlight the matches; raises FilterError."""
        self.pane.choose(self.pane.worker, text)
        if words := [word for word in text.split() if not MARKED_IN.search(word)]:
            self.pane.search_text = words[0]

    def back(self) -> bool:
        """Clear the filter, then the search, then the worker."""
        pane = self.pane
        if pane.filter_text:
            return super().back()
        if pane.search_text:
            pane.search_text = ""
        elif pane.worker is not None:
            worker = pane.worker
            pane.choose(None, pane.filter_text)
            if self._from_device:
                self.screen_app.go_to("device", worker)
        else:
            return False
        pane.move()
        return True

    def search(self, text: str) -> None:
        """Search for a text, upwards first: recent lines are likelier."""
        self.pane.search_text = text
        if not (self.pane.find(forward=False) or self.pane.find(forward=True)):
            self.screen_app.say(f"no line matches '{text}'")
        self.pane.move()

    def find(self, forward: bool) -> None:
        """Go to the next match; say so if no line matches."""
        if not self.pane.search_text:
            self.screen_app.say("nothing to search for: / filters, :search TEXT")
        elif not self.pane.find(forward):
            self.screen_app.say("no more matches " + ("below" if forward else "above"))

    async def only(self, name: str) -> None:
        """Show one worker's lines, or everyone's with `all`; without a name, open a list."""
        app = self.screen_app
        names = [worker.name for worker in app.watched.workers]
        if not name:
            items = [(each, Content(safe(each))) for each in ("all", *names)]
            chosen = await app.ask(Chooser("Show the lines of", items))
            if chosen is None:
                return
            name = chosen
        if name not in ("all", *names):
            raise HeadError(no_such("worker", name, names))
        self.go_to("" if name == "all" else name)

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

    COMMANDS: ClassVar[tuple[Command, ...]] = (
        Command("follow", "Follow the newest lines, or stop", follow, "f", hint="follow"),
        Command("search", "Search for a text", search, "", "TEXT"),
        Command("next", "Go to the next match", lambda view: view.find(True), "n"),
        Command("previous", "Go to the match before", lambda view: view.find(False), "N"),
        Command("only", "Show one worker's lines, or all", only, "b", "[WORKER|all]", "by worker"),
        Command("wrap", "Wrap long lines, or cut them", wrap, "w", hint="wrap"),
        Command("times", "Show or hide times", times, "t", hint="times"),
    )  # fmt: skip
