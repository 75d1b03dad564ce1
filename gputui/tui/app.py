"""The screen on a connection: the head's messages in, keys out to the commands and dialogs.

The app keeps nothing of its own: `live` holds the head's state, `playback` a run's recording. What
the first frame does not need (messages, dialogs, the commands that change a cluster) is imported
once it stands.
"""

import asyncio
import os
import sys
import time
from collections.abc import Callable, Coroutine
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from textual import events
from textual.app import ComposeResult
from textual.driver import Driver
from textual.screen import ModalScreen

from gputui.errors import ExitCode, GputuiError, HeadError
from gputui.model.plain_text import cut
from gputui.model.snapshot import HostState, RunStatus, Snapshot
from gputui.process.background import within
from gputui.tui.attachment import LOOK_S, Attachment, OpenConnection
from gputui.tui.commands.actions import COMMANDS
from gputui.tui.frame import KEYS_FIRST_S, Frame
from gputui.tui.preferences import location
from gputui.tui.rendering.format import safe
from gputui.tui.rendering.palette import OKABE_ITO, WITHOUT_COLOUR, ascii_alone, signals
from gputui.tui.terminal import CellDriver, draw_again, notify_person
from gputui.tui.watched import LOGIN, Watched

if TYPE_CHECKING:
    from gputui.protocol.frontend import Asked, ToFrontend
    from gputui.tui.commands.person import Person
    from gputui.tui.dialogs import Modal

NOTICE_CHARS = 200
DRAWN_S = 0.5
"""For how long a snapshot waits until a key, and the dialog that it opens, are drawn."""

ALWAYS_TAKEN = ("ctrl+l", "ctrl+z")
"""Keys that are about the terminal, also while something is asked."""

AskOnScreen = Callable[["Callable[[Asked], Coroutine[Any, Any, str | None]]"], None]
"""Takes the function that answers what the machine of a head elsewhere asks."""


class ScreenApp(Frame):
    """The screen; its result is the exit code."""

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    Screen { layers: base; }
    ContentSwitcher { height: 1fr; }
    App.-lost ContentSwitcher, App.-lost #totals,
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
        choices: Path | None = None,
        start_again: Callable[[], None] | None = None,
        earlier_runs: Callable[[], tuple[RunStatus, ...]] = tuple,
        notice: str = "",
        login: str = "",
        ask_on_screen: AskOnScreen | None = None,
    ) -> None:
        super().__init__(
            Attachment(open_connection, start_again, clock),
            readonly=readonly,
            login=login,
            choices=choices,
            earlier_runs=earlier_runs,
        )
        self.set_class(ascii_only, "-ascii", update=False)
        self._ask_on_screen = ask_on_screen
        self._notice = notice
        self._key_drawn = asyncio.Event()
        self._key_drawn.set()
        self.failure: GputuiError | None = None
        """Why the screen gave up."""
        self.registry.add(COMMANDS)
        self._wanted_theme = WITHOUT_COLOUR if self.no_color else theme or self.preferences.theme

    @cached_property
    def person(self) -> "Person":
        """The person at the screen."""
        from gputui.tui.commands.person import Person

        return Person(self)

    def get_css_variables(self) -> dict[str, str]:
        """Return the theme's variables, with red and amber as they are in all themes."""
        self.theme_variables = {**super().get_css_variables(), **signals(self.current_theme)}
        return self.theme_variables

    def get_driver_class(self) -> type[Driver]:
        """Return the driver that sends the terminal only the cells that changed."""
        return CellDriver

    def compose(self) -> ComposeResult:
        """Lay out the frame."""
        yield from (self.top, self.stage, self.prompt, self.bottom)

    async def on_mount(self) -> None:
        """Show the start view and begin to listen."""
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
        self.set_interval(LOOK_S, self._look)
        self.run_worker(self.know_all())
        self.say(self._notice or self._unread, bad=True)

    async def _open(self) -> None:
        """Listen to the cluster."""
        from gputui.protocol.frontend import SnapshotTaken

        try:
            async for message in self.head.messages():
                if isinstance(message, SnapshotTaken):
                    await self._let_keys_in()
                self._look()
                self.take(message)
        except GputuiError as error:
            self.failure = error
            self.exit()

    async def _let_keys_in(self) -> None:
        """Have the keys that came while a snapshot was decoded carried out and drawn, with the
        dialog that they open: to take in thousands of GPUs takes longer than a key.
        """
        await asyncio.sleep(KEYS_FIRST_S)
        await within(DRAWN_S, self._key_drawn.wait())
        top = self.screen_stack[-1] if self.screen_stack else None
        if isinstance(top, ModalScreen):
            await within(DRAWN_S, cast("Modal[object]", top).drawn.wait())

    async def on_unmount(self) -> None:
        """Detach from the cluster; a demo ends with that."""
        if self.head.connection is not None:
            await self.head.connection.close()

    # What the connection says

    def take(self, message: "ToFrontend | HeadError | None") -> None:
        """Process a message of the head; None is that it was met, and may be another."""
        from gputui.model import series
        from gputui.protocol import frontend, shared

        match message:
            case None:
                self.live = Watched()
                self.person.forget()
                self.top.warn("")
            case HeadError():
                self.top.warn(f"{message}; trying again")
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
            case series.HistoryTaken():
                self.live.history.begin(message)
            case frontend.Asked():
                self.person.hear(message)
            case frontend.Stopped(reason, failed):
                self.closing_text = self.person.ended(reason)
                if failed:
                    self.top.warn(f"the cluster failed: {reason}; q quits")
                else:
                    self.exit(ExitCode.DONE)

    def _tell_of_ends(self, before: Snapshot, now: Snapshot) -> None:
        """Have the terminal notify a person who looks elsewhere of runs that have ended."""
        if self.app_focus:
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
        if self.at_start and self.wanted == "hosts" and up and all(state.final for state in states):
            self.go_to("fleet")

    # What is drawn

    def draw(self) -> None:
        """Draw the present state, and show an open question."""
        super().draw()
        if self.live.questions:
            self.person.show_question()

    def _look(self) -> None:
        """Dim the page and say that the head does not answer, and why, while that is so."""
        was_lost, loss = self.head.lost, self.head.loss()
        if not loss:
            if was_lost:
                self._end_loss("")
            return
        help_ = "^n start it again" if self.head.can_start_again else "5 last events"
        if LOGIN in self.live.questions:
            help_ = "A answers what its machine asks"
        self.set_class(True, "-lost")
        self.person.show_question()
        self.draw_crumbs()
        self.top.lose(loss, f"{self.head.sentence()}\n{help_}   q quit")

    def _end_loss(self, text: str) -> None:
        """Show the page as it was before the head was lost, with another banner."""
        self.set_class(False, "-lost")
        self.top.warn(text)
        self.draw()

    def start_again(self) -> None:
        """Start the lost cluster again."""
        self._end_loss(f"starting {self.head.start_again()} again …")

    async def on_event(self, event: events.Event) -> None:
        """Carry out a key of the body before the next key is read, so that keys typed after `:` go
        to its line and `jx` acts on the next row. (Textual queues keys for the focused widget.)
        """
        if not isinstance(event, events.Key) or event.is_forwarded:
            await super().on_event(event)
            if isinstance(event, events.Resize):  # also as the terminal is taken, again
                draw_again(self)
            return
        self._key_drawn.clear()
        self.call_after_refresh(self._key_drawn.set)
        await self._keys_taken()
        if not self.busy_asking or event.key in ALWAYS_TAKEN:
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
                await cast("Modal[object]", top).stands()

    async def action_quit(self) -> None:
        """Ask whether the cluster stays, also when Textual's own quit is used."""
        await self.press("q")

    def action_help_quit(self) -> None:
        """Say how to leave, to a person who pressed ctrl+c."""
        self.say("q quits")


def recorded_runs() -> tuple[RunStatus, ...]:
    """Return all recorded runs, the newest first; a run whose process is gone is lost.

    Reading takes a disk's time: it is for a thread.
    """
    from gputui.runs.records import recorded, status_of

    return tuple(map(status_of, recorded()))


def run_screen(
    open_connection: OpenConnection,
    run: Callable[[Coroutine[Any, Any, Any]], Any] = asyncio.run,
    *,
    readonly: bool = False,
    theme: str | None = None,
    ascii: bool = False,
    start_again: Callable[[], None] | None = None,
    simulated: bool = False,
    notice: str = "",
    login: str = "",
    ask_on_screen: AskOnScreen | None = None,
) -> int:
    """Show the screen until it is left, and return the exit code.

    `open_connection` is called once the first frame stands, and again when the head was lost. What
    it raises is raised here once the screen is gone, except HeadError: that is tried again.
    `run` runs the screen in an event loop: that of the head's machine, where it is elsewhere.
    `start_again` has the next call start the cluster, where that can be done. `notice` is shown for
    some seconds at first. `login` is the machine of a head elsewhere; `ask_on_screen` takes the
    function that answers what it asks when it is reached again.
    """
    for name in ("COLUMNS", "LINES"):  # a shell may export them; Textual 8.2 believes them
        os.environ.pop(name, None)
    if os.environ.get("TERM") == "linux":
        theme = theme or WITHOUT_COLOUR
    app = ScreenApp(
        open_connection,
        readonly=readonly,
        theme=theme,
        ascii_only=ascii or ascii_alone(os.environ),
        choices=location(simulated=simulated),
        start_again=start_again,
        notice=notice,
        login=login,
        ask_on_screen=ask_on_screen,
        earlier_runs=tuple if simulated else recorded_runs,
    )
    code = run(app.run_async(mouse=not os.environ.get("SSH_CONNECTION")))
    if app.closing_text:
        print(f"gputui: {safe(app.closing_text)}", file=sys.stderr)
    if app.failure is not None:
        raise app.failure
    return int(code or app.return_code or 0)
