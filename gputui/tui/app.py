"""The screen's frame: a connection's messages in, the present view drawn, keys and commands out.

The app keeps nothing of its own: `live` holds the head's state, `playback` a run's recording.
Drawing is bounded to a few frames a second, and stands still while paused; the taking in goes on.
What the first frame does not need (messages, dialogs, the commands that change a cluster) is
imported once it stands.
"""

import asyncio
import os
import time
from collections.abc import Callable, Coroutine
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from textual import events
from textual.app import App, ComposeResult
from textual.driver import Driver
from textual.screen import ModalScreen

from gputui.errors import ExitCode, GputuiError
from gputui.model.plain_text import cut
from gputui.model.snapshot import HostState, RunStatus, Snapshot
from gputui.tui.attachment import LOOK_S, Attachment, OpenConnection, StartOptions
from gputui.tui.commands.actions import COMMANDS
from gputui.tui.commands.command_registry import Registry, key_name
from gputui.tui.preferences import Remembered
from gputui.tui.rendering.palette import OKABE_ITO, WITHOUT_COLOUR, colourless, signals
from gputui.tui.terminal import refuses_copies
from gputui.tui.terminal.driver import CellDriver, draw_again, notify_person
from gputui.tui.views import View, ViewSwitcher
from gputui.tui.watched import Playback, Watched
from gputui.tui.widgets import Drawing, Pane
from gputui.tui.widgets.bars import SAID_FOR_S, BottomBars, Keys, TopBars, summary
from gputui.tui.widgets.prompt import Prompt

if TYPE_CHECKING:
    from gputui.protocol.frontend import Asked, ToFrontend
    from gputui.runs.playback import RecordedRun
    from gputui.tui.commands.person import Person
    from gputui.tui.dialogs.modal import Modal, Result

NOTICE_CHARS = 200
SHORTEST_FRAME_S = 0.2
SMALLEST = (60, 15)
"""A terminal that is smaller in either direction gets a summary in place of a view."""

ALWAYS = {"run": 1, "command": 2, "help": 3, "quit": 4}
"""Commands that the line of keys ends with at any width, dim where they cannot be called."""

AskOnScreen = Callable[["Callable[[Asked], Coroutine[Any, Any, str | None]]"], None]
"""Takes the function that answers what the machine of a head elsewhere asks."""


class ScreenApp(App[int]):
    """The screen; its result is the exit code."""

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    Screen { layers: base; }
    #summary { height: 1fr; display: none; }
    App.-lost ViewSwitcher, App.-lost #summary, App.-lost #totals,
    App.-lost #crumbs { opacity: 40%; }
    App.-ascii Modal > Vertical { border: ascii $primary; }
    """

    def __init__(
        self,
        open_connection: OpenConnection,
        *,
        readonly: bool = False,
        theme: str | None = None,
        ascii_only: bool = False,
        clock: Callable[[], float] = time.time,
        remembered: Remembered | None = None,
        start_again: Callable[[], None] | None = None,
        earlier_runs: Callable[[], tuple[RunStatus, ...]] = tuple,
        first: StartOptions | None = None,
        login: str = "",
        ask_on_screen: AskOnScreen | None = None,
        hints: bool = False,
    ) -> None:
        super().__init__(ansi_color=True if colourless() else None)
        self.remembered = remembered or Remembered()
        self.readonly = readonly
        self.ascii_only = ascii_only
        self.clock = clock
        self.paused = False
        self._first = first
        self.login = login
        """The machine of a head elsewhere, as it was named."""
        self._ask_on_screen = ask_on_screen
        self._hints = hints
        """Whether to show the hint for the next key, until it was pressed once."""
        self.earlier_runs = earlier_runs
        """Reads the runs of earlier clusters from the disk."""
        self.failure: GputuiError | None = None
        """Why the screen gave up."""
        self.live = Watched()
        """The cluster as it is."""
        self.playback: Playback | None = None
        """The recording that the views show in place of it."""
        self.registry = Registry(COMMANDS)
        self.closing_text = ""
        """Text printed after the screen has closed."""
        self.head = Attachment(self, open_connection, start_again)
        self.stage = ViewSwitcher(self.registry)
        self.prompt = Prompt(self.focus_view, lambda found: self.say("  ".join(found)))
        self._wanted_theme = WITHOUT_COLOUR if self.no_color else theme or self.remembered.now.theme
        self._starting = True
        """Whether the start view gives way to the fleet by itself when all hosts are settled."""
        self._drawn_at = 0.0
        self._draw_waits = False
        self._top, self._bottom = TopBars(), BottomBars()
        self._summary = Pane(id="summary")

    @property
    def watched(self) -> Watched:
        """The cluster as the views show it."""
        return self.playback.watched if self.playback else self.live

    @cached_property
    def person(self) -> "Person":
        """The person at the screen."""
        from gputui.tui.commands.person import Person

        return Person(self)

    def get_css_variables(self) -> dict[str, str]:
        """Return the theme's variables, with red and amber as they are in all themes."""
        variables = super().get_css_variables()
        self.theme_variables = {**variables, **signals(self.current_theme)}
        return self.theme_variables

    def get_driver_class(self) -> type[Driver]:
        """Return the driver that sends the terminal only the cells that changed."""
        return CellDriver

    def compose(self) -> ComposeResult:
        """Lay out the frame."""
        yield self._top
        yield self.stage
        yield self._summary
        yield self.prompt
        yield self._bottom

    async def on_mount(self) -> None:
        """Show the start view and begin to listen."""
        self.set_class(self.ascii_only, "-ascii")
        self.register_theme(OKABE_ITO)
        if self._wanted_theme in self.available_themes:
            self.theme = self._wanted_theme
        self.theme_changed_signal.subscribe(self, self._draw_anew)
        await self.show_view("hosts")
        self.draw()
        self.call_after_refresh(self._begin)

    def _begin(self) -> None:
        """Finish starting after the first frame."""
        from gputui.tui.commands.changes import COMMANDS

        self.registry.add(COMMANDS)
        if self._ask_on_screen is not None:
            self._ask_on_screen(self.person.answer_login)
        self.run_worker(self._open(), name="connection", exit_on_error=True)
        self.set_interval(LOOK_S, self.head.look)
        self.run_worker(self.stage.get_ready())
        self.say(self.remembered.trouble, bad=True)

    async def _open(self) -> None:
        """Have a person choose a cluster where none was named, and listen to it."""
        if self._first is not None:
            from gputui.tui.commands.person import choose_start

            opener = await choose_start(self, self._first)
            if opener is None:
                self.exit(ExitCode.DONE)
                return
            self.head.open_connection = opener
        await self.head.listen()

    async def on_unmount(self) -> None:
        """Detach from the cluster; a demo ends with that."""
        if self.head.connection is not None:
            await self.head.connection.close()

    # What the connection says

    def met_head(self) -> None:
        """Begin again: the head may be another than before."""
        self.live = Watched()
        self.person.forget()
        self.warn("")

    def take(self, message: "ToFrontend") -> None:
        """Process a message of the head."""
        from gputui.protocol import frontend, shared

        match message:
            case frontend.SnapshotTaken(snapshot):
                before = self.live.snapshot
                if self.live.take(snapshot):
                    self._tell_of_ends(before, snapshot)
                    self._leave_start(snapshot)
                    self.redraw()
            case frontend.EventHappened(event):
                self.live.events.append(event)
            case shared.LogLines():
                self.live.logs.add(message)
                self.redraw()
            case frontend.HistoryTaken():
                self.live.history.begin(message)
            case frontend.Asked():
                self.person.hear(message)
            case frontend.Stopped(reason, failed):
                self.closing_text = self.person.ended(reason)
                if failed:
                    self.warn(f"the cluster failed: {reason}; q quits")
                else:
                    self.exit(ExitCode.DONE)

    def _tell_of_ends(self, before: Snapshot | None, now: Snapshot) -> None:
        """Have the terminal notify a person who looks elsewhere of runs that have ended."""
        if self.app_focus or before is None:
            return
        went_on = {run.id for run in before.runs if not run.state.ended}
        for run in now.runs:
            if run.state.ended and run.id in went_on:
                text = f"{run.preset}: {run.state}: {run.words}".removesuffix(": ")
                notify_person(self, cut(text, NOTICE_CHARS))

    def _leave_start(self, snapshot: Snapshot) -> None:
        """Show the fleet once every host is ready or failed, unless another view was chosen.

        If all have failed, or there are too few free GPUs, the start view stays and says why.
        """
        states = [host.state for host in snapshot.hosts]
        came_up = any(state is not HostState.FAILED for state in states)
        up = came_up and not snapshot.lacking
        if self._starting and up and all(state.final for state in states):
            self._starting = False
            if self.stage.wanted == "hosts":
                self.go_to("fleet")
            if self._hints and "run" not in self.remembered.now.pressed and not self.readonly:
                what = "+ starts workers on marked GPUs   :exec runs a program"
                what = what if self.watched.watching else "c runs a preset on it"
                self._top.hint(f"{what}   ? lists all keys   q quits")

    # What is drawn

    def redraw(self) -> None:
        """Draw the present state, at most a few times a second."""
        if self._draw_waits or self.paused:
            return
        wait = self._drawn_at + SHORTEST_FRAME_S - time.monotonic()
        if wait <= 0:
            self.draw()
        else:
            self._draw_waits = True
            self.set_timer(wait, self.draw)

    def draw(self) -> None:
        """Draw the present state."""
        self._draw_waits = False
        self._drawn_at = time.monotonic()
        if (view := self.view) is None or not self.is_running:
            return
        self._top.show(self.watched, self.playback, paused=self.paused, readonly=self.readonly)
        self._summary.display, self.stage.display = self._is_small, not self._is_small
        if self._is_small:
            self._summary.put(summary(self.watched, self.size.width))
        else:
            view.show(self.watched)
        self.draw_crumbs()
        if self.live.questions:
            self.person.show_question()

    @property
    def _is_small(self) -> bool:
        return self.size.width < SMALLEST[0] or self.size.height < SMALLEST[1]

    def _draw_anew(self, _theme: object) -> None:
        """Draw everything in the colours of another theme."""
        for drawing in self.query(Drawing):
            drawing.refresh()

    def on_resize(self) -> None:
        """Choose again what fits."""
        self.call_after_refresh(self.draw)

    def draw_crumbs(self) -> None:
        """Draw the lines below the body."""
        offered = [
            each
            for each in self.registry.in_view(self.stage.current)
            if each.hint and not (each.changes and self.readonly)
            if each.name in ALWAYS or each.offered(self)
        ]
        keys = sorted(offered, key=lambda each: ALWAYS.get(each.name, 0))
        dim = [each.name for each in keys if each.why_not(self)]
        self._bottom.show(None if self._is_small else self.view, self.stage.current, keys, dim)

    def simulate(self) -> None:
        """Store later choices and runs apart from those of real clusters."""
        self.remembered = self.remembered.of_demo()
        self.earlier_runs = tuple

    def used(self, command: str) -> None:
        """Note that a command was called: what points to it is not shown again."""
        if self._hints and command == "run" and "run" not in self.remembered.now.pressed:
            self.prefer(pressed=(*self.remembered.now.pressed, "run"))
            self._top.hint("")

    def show_loss(self, status: str, sentence: str) -> None:
        """Dim the page and say that the head is unreachable, and why; "" undoes it."""
        self.set_class(bool(status), "-lost")
        if not status:
            self._top.lose("", "")
            self.warn("")
            self.draw()
            return
        help_ = "^n start it again" if self.head.can_start_again else "5 last events"
        if self.person.login_asks:
            help_ = "A answers what its machine asks"
        self.person.show_question()
        self.draw_crumbs()
        self._top.lose(status, f"{sentence}\n{help_}   q quit")

    def warn(self, text: str) -> None:
        """Show a banner until it is taken back with ""."""
        self._top.warn(text)

    def say(self, text: str, *, bad: bool = False) -> None:
        """Show a message for some seconds in the line below the body; "" clears it."""
        self._bottom.say(text, bad=bad)
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
        """Remember a choice of theme, zoom or columns for later sessions."""
        try:
            self.remembered.change(**chosen)
        except OSError as error:
            self.say(f"not saved, for this session only: {error}", bad=True)

    # Views

    @property
    def view(self) -> View | None:
        """The view in sight."""
        return self.stage.view

    async def show_view(self, name: str, key: str = "") -> None:
        """Switch to a view and select the item with this key."""
        self._starting = self._starting and name == "hosts"
        view = await self.stage.bring(name)
        view.show(self.watched)
        self.focus_view()
        self.call_after_refresh(self._enter, view, key)

    def _enter(self, view: View, key: str) -> None:
        self.draw()
        if key:
            view.go_to(key)
        self.focus_view()

    def focus_view(self) -> None:
        """Give the focus back to the view in sight."""
        if self.view is not None and not self.prompt.active:
            self.view.focus_body()

    def go_to(self, name: str, key: str = "") -> None:
        """Bring a view into sight soon, unless another is asked for until then."""
        self.stage.wanted = name
        self.run_worker(self._go_to(name, key))

    async def _go_to(self, name: str, key: str) -> None:
        if self.stage.wanted == name:
            await self.show_view(name, key)

    async def play_back(self, recorded: "RecordedRun") -> None:
        """Show a recording from its beginning."""
        self.playback = Playback(recorded)
        self._top.hint("")
        await self.show_view("fleet")

    async def leave_playback(self) -> bool:
        """Show the cluster as it is again, and the run; return whether a recording was shown."""
        played, self.playback = self.playback, None
        if played is not None:
            await self.show_view("runs", played.recorded.run.id)
        return played is not None

    # Commands

    async def ask(self, modal: "Modal[Result]") -> "Result":
        """Open a dialog at once, and return its result; for use in a worker."""
        return await asyncio.shield(self.push_screen(modal, wait_for_dismiss=True))

    @property
    def busy_asking(self) -> bool:
        """Whether a dialog is open or something is typed into the line."""
        return len(self.screen_stack) > 1 or self.prompt.active

    async def on_event(self, event: events.Event) -> None:
        """Carry out a key of the body before the next key is read, so that keys typed after `:` go
        to its line and `jx` acts on the next row. (Textual queues keys for the focused widget.)
        """
        if not isinstance(event, events.Key) or event.is_forwarded:
            await super().on_event(event)
            if isinstance(event, events.Resize):  # also as the terminal is taken, again
                draw_again(self)
            return
        await self._keys_taken()
        if not self.busy_asking:
            if await self.press(event.key):
                return
            bound = self.screen.active_bindings.get(event.key)
            if bound is not None and await self.run_action(bound.binding.action, bound.node):
                return
        await super().on_event(event)
        if event.key in ("enter", "escape"):
            await self.prompt.closes()

    async def _keys_taken(self) -> None:
        """Wait until the dialog in sight, if any, has carried out the keys before: one of them may
        close it, or open another.
        """
        top = None
        while self.screen_stack and self.screen_stack[-1] is not top:
            top = self.screen_stack[-1]
            if isinstance(top, ModalScreen):
                await cast("Modal[Any]", top).stands()

    async def press(self, key: str) -> bool:
        """Carry out a key's command in the present view; return False if it has none. A key of
        another view shows where it applies.
        """
        command = self.registry.by_key(key, self.stage.current)
        if command is not None:
            await command.call(self)
        elif others := [each for each in self.registry if each.key == key]:
            views = ", ".join(each.view for each in others)
            self.say(f"{others[0].name}: in the {views} view only", bad=True)
        return command is not None

    async def on_keys_pressed(self, event: Keys.Pressed) -> None:
        """Call the command of a key that was clicked."""
        commands = self.registry.in_view(self.stage.current)
        await self.press(next(each.key for each in commands if key_name(each.key) == event.key))

    async def action_quit(self) -> None:
        """Ask whether the cluster stays, also when Textual's own quit is used."""
        await self.press("q")

    def action_help_quit(self) -> None:
        """Say how to leave, to a person who pressed ctrl+c."""
        self.say("q quits")
