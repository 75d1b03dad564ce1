"""What views and commands know of the screen: the view in sight, what it draws, the line that asks.

`View` is the contract with a view; `Frame` brings views into sight, draws the lines around them,
carries commands out, and asks the person. Drawing is bounded to a few frames a second, and stands
still while paused; the taking in goes on. `app.ScreenApp` is the frame on a connection.
"""

import asyncio
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

import msgspec
from textual import work
from textual.app import App
from textual.screen import ModalScreen
from textual.widget import Widget
from textual.widgets import ContentSwitcher

from gputui.errors import GputuiError, UsageError
from gputui.model.snapshot import RunStatus
from gputui.tui.attachment import Attachment
from gputui.tui.commands import PAST, Command, Registry
from gputui.tui.filter import Fields
from gputui.tui.preferences import Preferences, load, save
from gputui.tui.rendering import Line
from gputui.tui.rendering.palette import colourless
from gputui.tui.terminal import refuses_copies
from gputui.tui.views import VIEWS, load_view
from gputui.tui.watched import Playback, Watched
from gputui.tui.widgets import Drawing
from gputui.tui.widgets.bars import SAID_FOR_S, BottomBars, TopBars
from gputui.tui.widgets.prompt import Prompt

if TYPE_CHECKING:
    from gputui.runs.playback import RecordedRun

Result = TypeVar("Result")
SHORTEST_FRAME_S = 0.2
KEYS_FIRST_S = 0.005
"""For how long keys that came while a snapshot was taken in go before its drawing."""
ALWAYS = {"run": 1, "command": 2, "help": 3, "quit": 4}
"""Commands that the line of keys ends with at any width, dim where they cannot be called."""


class View(Widget):
    """One of the screen's views.

    A subclass names its commands, which are called with the view. The frame calls `show` whenever
    there is something new to draw while it is in sight.
    """

    DEFAULT_CSS = "View { height: 1fr; width: 1fr; }"
    NAME: ClassVar[str]
    COMMANDS: ClassVar[tuple[Command, ...]] = ()
    FILTER: ClassVar[Fields[Any] | None] = None
    """What its filter can ask for, where it has one."""
    filter_text = ""
    """The filter as it was typed."""

    @property
    def screen_app(self) -> "Frame":
        """The frame this view is in."""
        return cast("Frame", self.app)

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
            for each in (self, *self.query("*"))
            if isinstance(each, Drawing)
            and all(node.display for node in each.ancestors_with_self if isinstance(node, Widget))
        ]
        lines = [line for drawing in shown for line in drawing.lines]
        return "".join("".join(text for text, _ in line).rstrip() + "\n" for line in lines)

    def go_to(self, key: str) -> None:
        """Show the item with this key: a host, a worker, a run, or a GPU's slot."""

    @property
    def names(self) -> Iterable[str]:
        """The keys of the rows that it shows."""
        return ()

    def targets(self) -> tuple[str, ...]:
        """Return the targets of a change: keys of workers, slots or hosts that are marked,
        else the one under the cursor."""
        return ()

    def copied(self) -> str:
        """Return the text that `y` copies: of the marked rows, or the one under the cursor."""
        return " ".join(self.targets())

    def narrow(self, text: str) -> None:
        """Show only what matches a filter, all with ""; raises UsageError."""

    def filter(self, text: str) -> str:
        """Take a filter's text; return its mistake, or ""."""
        try:
            self.narrow(text.strip())
        except UsageError as error:
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
        self.take_focus(self)

    def take_focus(self, widget: Widget) -> None:
        """Give a widget the focus at once, before the next key is looked at.

        Textual's `focus` waits until all that is queued is done (seen in Textual 8.2). A view that
        comes into sight as the screen closes has none any more.
        """
        if self.is_attached:
            self.screen.set_focus(widget)


class Frame(App[int]):
    """The screen as its views and commands know it."""

    def __init__(
        self,
        head: Attachment,
        *,
        readonly: bool = False,
        login: str = "",
        choices: Path | None = None,
        earlier_runs: Callable[[], tuple[RunStatus, ...]] = tuple,
    ) -> None:
        """`choices` is the file of the person's choices; `earlier_runs` reads those of earlier
        clusters from the disk.
        """
        super().__init__(ansi_color=True if colourless() else None)
        self.head = head
        self.preferences, self._unread = Preferences(), ""
        self._choices = choices
        try:
            self.preferences = load(choices) if choices else self.preferences
        except (OSError, msgspec.MsgspecError) as error:
            self._unread = f"{choices}: choices not read: {error}"
        self.readonly = readonly
        self.login = login
        """The machine of a head elsewhere, as it was named."""
        self.paused = False
        self.live = Watched()
        """The cluster as it is."""
        self.playback: Playback | None = None
        """The recording that the views show in place of it."""
        self.registry = Registry()
        self.earlier_runs = earlier_runs
        self.closing_text = ""
        """Text printed after the screen has closed."""
        self.stage = ContentSwitcher()
        self.trail: list[str] = []
        """The views that led to the one in sight; `esc` goes back along them."""
        self.at_start = True
        """Whether no view but the start view was shown."""
        self.wanted = ""
        """The name of the view that was asked for last."""
        self.visited: dict[str, View] = {}
        """Those that were visited."""
        self.prompt = Prompt(self.focus_view, lambda found: self.say("  ".join(found)))
        self._drawn_at = 0.0
        self._draw_waits = False
        self.top, self.bottom = TopBars(), BottomBars()

    @property
    def watched(self) -> Watched:
        """The cluster as the views show it."""
        return self.playback.watched if self.playback else self.live

    # What is drawn

    def redraw(self) -> None:
        """Draw the present state, at most a few times a second."""
        if self._draw_waits or self.paused:
            return
        self._draw_waits = True
        wait = self._drawn_at + SHORTEST_FRAME_S - time.monotonic()
        self.set_timer(max(wait, KEYS_FIRST_S), self.draw)

    def draw(self) -> None:
        """Draw the present state."""
        self._draw_waits = False
        self._drawn_at = time.monotonic()
        if not (self.current and self.is_running):
            return
        if not self.head.lost:
            self.top.show(self.watched, self.playback, paused=self.paused, readonly=self.readonly)
        self.view.show(self.watched)
        self.draw_crumbs()

    def _draw_anew(self, _theme: object) -> None:
        """Draw everything in the colours of another theme."""
        self.query(Drawing).refresh()

    def on_resize(self) -> None:
        """Choose again what fits."""
        self.call_after_refresh(self.draw)

    def draw_crumbs(self) -> None:
        """Draw the lines below the body."""
        hinted = [each for each in self.registry.in_view(self.current) if each.hint]
        hinted = [each for each in hinted if not (each.changes and self.readonly)]
        dim = {each.name for each in hinted if self.why_not(each)}
        offered = [
            each
            for each in hinted
            if each.name in ALWAYS or not (each.name in dim or each.pointless(self._target(each)))
        ]
        keys = sorted(offered, key=lambda each: ALWAYS.get(each.name, 0))
        self.bottom.show(self.view.crumbs(), self.current, keys, dim)

    def say(self, text: str, *, bad: bool = False) -> None:
        """Show a message for some seconds in the line below the body; "" clears it."""
        self.bottom.say(text, bad=bad)
        if text:
            self.set_timer(SAID_FOR_S, self.draw_crumbs)
        else:
            self.draw_crumbs()

    def copy_to_clipboard(self, text: str) -> None:
        """Copy a text into the terminal's clipboard, and say so, or why not."""
        super().copy_to_clipboard(text)
        why_not = refuses_copies(os.environ)
        said = f"not copied, {why_not}: {text}" if why_not else f"copied: {text}"
        self.say(said, bad=bool(why_not))

    def prefer(self, **chosen: Any) -> None:
        """Choose otherwise, also for later sessions."""
        self.preferences = replace(self.preferences, **chosen)
        try:
            if self._choices is not None:
                save(self._choices, self.preferences)
        except OSError as error:
            self.say(f"not saved, for this session only: {error}", bad=True)

    # Views

    @property
    def view(self) -> View:
        """The view in sight; there is one from the first frame on."""
        return self.visited[self.current]

    @property
    def current(self) -> str:
        """The name of the view in sight, "" before there is one."""
        return self.stage.current or ""

    async def show_view(self, name: str, key: str = "") -> None:
        """Bring a view into sight, and select the item with this key.

        Where two are brought at once, the one asked for last stays.
        """
        self.wanted = name
        view = self.visited.get(name) or await self._make(name)
        if self.wanted == name != self.current:
            if name in self.trail:
                del self.trail[self.trail.index(name) :]
            elif self.current:
                self.trail.append(self.current)
            self.stage.current, self.at_start = name, self.at_start and name == "hosts"
        view.show(self.watched)
        self.focus_view()
        self.call_after_refresh(self._enter, view, key)

    async def _make(self, name: str) -> View:
        view: View = load_view(name)()
        self.visited[name] = view
        view.id, view.display = name, False
        self.registry.add(view.COMMANDS, name)
        await self.stage.mount(view)
        return view

    async def know_all(self) -> None:
        """Make the fleet's view, and add every view's commands, while nobody waits for them.

        In steps, between which snapshots are taken and keys answered.
        """
        if "fleet" not in self.visited and self.stage.is_attached:  # else the screen has ended
            await self._make("fleet")
        for name in VIEWS:
            self.registry.add(load_view(name).COMMANDS, name)
            await asyncio.sleep(0)

    def _enter(self, view: View, key: str) -> None:
        self.draw()
        if key:
            view.go_to(key)
        self.focus_view()

    def focus_view(self) -> None:
        """Give the focus back to the view in sight."""
        if not self.prompt.active:
            self.view.focus_body()

    def go_to(self, name: str, key: str = "") -> None:
        """Bring a view into sight soon, unless another is asked for until then."""
        self.wanted = name
        self._go_to(name, key)

    @work
    async def _go_to(self, name: str, key: str) -> None:
        if self.wanted == name:
            await self.show_view(name, key)

    async def play_back(self, recorded: "RecordedRun") -> None:
        """Show a recording from its beginning."""
        self.playback = Playback(recorded)
        await self.show_view("fleet")

    async def leave_playback(self) -> bool:
        """Show the cluster as it is again, and the run; return whether a recording was shown."""
        played, self.playback = self.playback, None
        if played is not None:
            await self.show_view("runs", played.recorded.run.id)
        return played is not None

    # Commands

    async def ask(self, modal: ModalScreen[Result]) -> Result:
        """Open a dialog at once, and return its result; for use in a worker."""
        return await asyncio.shield(self.push_screen(modal, wait_for_dismiss=True))

    @property
    def busy_asking(self) -> bool:
        """Whether a dialog is open or something is typed into the line."""
        return len(self.screen_stack) > 1 or self.prompt.active

    async def press(self, key: str) -> bool:
        """Carry out a key's command in the present view; return False if it has none. A key of
        another view shows where it applies.
        """
        command = self.registry.by_key(key, self.current)
        if command is not None:
            await self.call(command)
        elif others := [each for each in self.registry if each.key == key]:
            *more, last = [each.view for each in others]
            views = f"{', '.join(more)} and {last} views" if more else f"{last} view"
            self.say(f"{others[0].name}: in the {views} only", bad=True)
        return command is not None

    async def call(self, command: Command, argument: str = "") -> None:
        """Carry a command out, or show why it is unavailable."""
        if why_not := self.why_not(command):
            self.say(f"{command.name}: {why_not}", bad=True)
            return
        if command.at_once:
            await self._carry_out(command, argument)
        else:
            self.run_worker(self._carry_out(command, argument))
            await asyncio.sleep(0)  # its dialog stands before the next key is looked at

    async def _carry_out(self, command: Command, argument: str) -> None:
        try:
            if argument and not command.usage:
                raise UsageError(f"nothing is written after it: {argument}")
            waiting = command.run(self._target(command), *([argument] if command.usage else []))
            if waiting is not None:
                await waiting
        except GputuiError as error:
            self.say(f"{command.name}: {error}", bad=True)

    def _target(self, command: Command) -> "Frame | View":
        """Return the first argument of a command's functions: its view, or the frame."""
        return self.visited[command.view] if command.view else self

    def why_not(self, command: Command) -> str:
        """Return why a command is unavailable now, or ""."""
        if command.changes and self.readonly:
            return "this screen is read-only"
        if command.changes and self.playback:
            return PAST
        if command.changes and self.head.lost:
            return "the head does not answer"
        if command.view not in ("", self.current):
            return f"in the {command.view} view only"
        return command.unavailable(self._target(command))
