"""The screen's frame: a link's messages in, the present view drawn, keys and commands out.

`run_screen` is what the command line calls. The app keeps nothing of its own: `watched` is what
the head told. Drawing is bounded to a few frames a second, and stands still while paused; the
taking in goes on.
"""

import asyncio
import os
import sys
import time
from collections.abc import Callable, Sequence

from textual import events
from textual.app import App, ComposeResult
from textual.containers import Container

from gputui.errors import ExitCode, HeadError
from gputui.protocol import (
    Answer,
    Asked,
    Done,
    EventHappened,
    LogLines,
    Message,
    Previewed,
    SnapshotTaken,
    Stop,
    Stopped,
    SubscribeLogs,
)
from gputui.snapshot import Snapshot
from gputui.tui import frame
from gputui.tui.actions import COMMANDS
from gputui.tui.changes import COMMANDS as CHANGES
from gputui.tui.commands import Command, Registry
from gputui.tui.dialogs import Choice, Dialog, QuestionDialog
from gputui.tui.format import safe
from gputui.tui.link import Link, OpenLink
from gputui.tui.pane import Line, Pane
from gputui.tui.prompt import Prompt
from gputui.tui.running import COMMANDS as RUNS
from gputui.tui.table import Table
from gputui.tui.themes import OKABE_ITO, WITHOUT_COLOUR
from gputui.tui.view import View
from gputui.tui.views import VIEWS, ViewKind
from gputui.tui.watched import Watched

SHORTEST_FRAME_S = 0.2
RECONNECT_S = 2.0
SAID_FOR_S = 6.0
SMALLEST = (60, 15)
"""A terminal that is smaller in either direction gets a summary in place of a view."""


class ScreenApp(App[int]):
    """The screen; its result is the exit code."""

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    Screen { layers: base; }
    .bar { height: 1; }
    #banner { display: none; }
    #body { height: 1fr; }
    #summary { height: 1fr; display: none; }
    App.-ascii Dialog > Vertical, App.-ascii Finder > Vertical { border: ascii $primary; }
    """

    def __init__(
        self,
        open_link: OpenLink,
        *,
        readonly: bool = False,
        theme: str | None = None,
        ascii_only: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__()
        self.readonly = readonly
        self.ascii_only = ascii_only
        self.clock = clock
        self.paused = False
        self.watched = Watched()
        self.registry = Registry((*COMMANDS, *CHANGES, *RUNS))
        self.link: Link | None = None
        self._open_link = open_link
        self._wanted_theme = theme or ""
        self._views: dict[str, View] = {}
        self._known: set[str] = set()
        self._back_to_fleet = False
        self._launching = True
        """Whether the launch board gives way to the fleet by itself when all hosts are settled."""
        self._current = ""
        self.came_from = ""
        """The view that was in sight before this one."""
        self._drawn_at = 0.0
        self._draw_waits = False
        self._stopped: Stopped | None = None
        self._wants_logs = False
        self._said: Line = ()
        self._silence_at = 0.0
        self._leaving = False
        self._question: int | None = None
        """The question that is being asked."""
        self._question_dialog: QuestionDialog | None = None
        self._put_off: set[int] = set()
        self._status, self._banner = Pane(classes="bar"), Pane(id="banner", classes="bar")
        self._crumbs, self._keys = Pane(classes="bar"), Pane(classes="bar")
        self._summary = Pane(id="summary")
        self._body = Container(id="body")
        self.prompt = Prompt()

    def compose(self) -> ComposeResult:
        """Lay out the frame."""
        for pane in (self._status, self._banner, self._summary, self._crumbs, self._keys):
            pane.can_focus = False
        yield self._status
        yield self._banner
        yield self._body
        yield self._summary
        yield self.prompt
        yield self._crumbs
        yield self._keys

    async def on_mount(self) -> None:
        """Show the fleet and begin to listen."""
        self.set_class(self.ascii_only, "-ascii")
        self.register_theme(OKABE_ITO)
        if self._wanted_theme in self.available_themes:
            self.theme = self._wanted_theme
        self.theme_changed_signal.subscribe(self, self._draw_anew)
        await self.show_view("launch")
        self.call_after_refresh(self._know_all)
        self.run_worker(self._listen(), name="link", exit_on_error=True)

    # What the link says

    async def _listen(self) -> None:
        """Take what the head says; when it is gone, look for it again."""
        while True:
            try:
                self.link = await self._open_link()
            except HeadError as error:
                self.warn(f"{error}; trying again")
            else:
                self.watched.forget()
                self.warn("")
                if self._wants_logs:
                    await self.link.send(SubscribeLogs(True))
                async for message in self.link.messages():
                    self._take(message)
                if self._stopped is not None:
                    return
                self.link = None
                self.warn("the cluster's head is gone; trying to reach it again")
            await asyncio.sleep(RECONNECT_S)

    def _take(self, message: Message) -> None:
        if isinstance(message, SnapshotTaken):
            if self.watched.take(message.snapshot):
                self._leave_launch(message.snapshot)
                self.redraw()
            return
        if isinstance(message, EventHappened):
            self.watched.events.append(message.event)
        elif isinstance(message, LogLines):
            self.watched.logs.add(message)
            self.redraw()
        elif isinstance(message, Asked):
            self.watched.ask(message)
            if message.withdrawn:
                self._withdraw(message.question)
            self._ask_person()
        elif isinstance(message, Stopped):
            self._stopped = message
            self._end(message)
        for view in self._views.values():
            view.take(message)

    def _leave_launch(self, snapshot: Snapshot) -> None:
        """Show the fleet once every host has come to an end of its start, if nobody chose."""
        if self._launching and snapshot.hosts and all(host.state.final for host in snapshot.hosts):
            self._launching = False
            if self._current == "launch":
                self.go_to("fleet")

    def _end(self, message: Stopped) -> None:
        if message.failed:
            self.warn(f"the cluster failed: {message.reason}; q leaves")
        else:
            self.exit(ExitCode.DONE)

    # What is drawn

    def redraw(self) -> None:
        """Draw what is known now, at most a few times a second."""
        if self._draw_waits or self.paused:
            return
        wait = self._drawn_at + SHORTEST_FRAME_S - time.monotonic()
        if wait <= 0:
            self.draw()
        else:
            self._draw_waits = True
            self.set_timer(wait, self.draw)

    def draw(self) -> None:
        """Draw what is known now."""
        self._draw_waits = False
        self._drawn_at = time.monotonic()
        if (view := self.view) is None or not self.is_running:
            return
        self.draw_status(paused=self.paused)
        small = self.size.width < SMALLEST[0] or self.size.height < SMALLEST[1]
        self._summary.display, self._body.display = small, not small
        if small:
            self._summary.put(frame.summary(self.watched, self.size.width))
        else:
            view.show(self.watched)
        self.draw_crumbs()

    def _draw_anew(self, _theme: object) -> None:
        """Draw everything in the colours of another theme."""
        for pane in self.query(Pane):
            pane.forget_drawing()
        for table in self.query(Table):
            table.forget_drawing()

    def on_resize(self) -> None:
        """Choose anew what fits."""
        self.call_after_refresh(self.draw)

    def draw_status(self, *, paused: bool) -> None:
        """Draw the line above the body."""
        snapshot = self.watched.snapshot
        self._status.put([frame.status_line(snapshot, paused=paused, readonly=self.readonly)])

    def draw_crumbs(self) -> None:
        """Draw the lines below the body."""
        view = self.view
        if time.monotonic() >= self._silence_at:
            self._said = ()
        self._crumbs.put([self._said or (view.crumbs() if view else ())])
        views = [(kind.key, kind.name) for kind in VIEWS if kind.key]
        commands = [
            each
            for each in self.registry.in_view(self._current)
            if not (each.changes and self.readonly)
        ]
        self._keys.put([frame.keys_line(commands, views, self._current)])

    def warn(self, text: str) -> None:
        """Show a banner until it is taken back with ""."""
        self._banner.display = bool(text)
        self._banner.put([((f" {text}", "bad"),)])

    def say(self, text: str, *, bad: bool = False) -> None:
        """Tell of something for some seconds, in the line below the body."""
        if text:
            self._said = ((safe(text.replace("\n", "; ")), "warn" if bad else "accent"),)
            self._silence_at = time.monotonic() + SAID_FOR_S
            self._crumbs.put([self._said])
            self.set_timer(SAID_FOR_S, self.draw_crumbs)

    # Views

    @property
    def view(self) -> View | None:
        """The view in sight."""
        return self._views.get(self._current)

    async def show_view(self, name: str, key: str = "") -> View:
        """Bring a view into sight, and in it what bears this key."""
        view = self._views.get(name) or await self._load(_kind(name))
        for other in self._views.values():
            other.display = other is view
        if name != self._current:
            self.came_from, self._current = self._current, name
        view.focus_body()
        self.call_after_refresh(self._enter, view, key)
        return view

    def _enter(self, view: View, key: str) -> None:
        self.draw()
        if key:
            view.go_to(key)
        if view is self.view and not self.prompt.active:
            view.focus_body()

    def focus_view(self) -> None:
        """Give the focus back to the view in sight."""
        if self.view is not None:
            self.view.focus_body()

    async def _load(self, kind: ViewKind) -> View:
        view_class = kind.load()
        view = self._views[kind.name] = view_class()
        self._know(kind)
        await self._body.mount(view)
        return view

    def _know(self, kind: ViewKind) -> None:
        """Take in a view's commands, once."""
        if kind.name not in self._known:
            self._known.add(kind.name)
            self.registry.add(kind.load().COMMANDS)

    def _know_all(self) -> None:
        """Take in every view's commands, for the palette and the `:` line."""
        for kind in VIEWS:
            self._know(kind)

    def go_back(self) -> None:
        """Return to the view that was left last, once; then to the fleet."""
        if self._current != "fleet":
            back, self._back_to_fleet = self.came_from, not self._back_to_fleet
            self.go_to(back if self._back_to_fleet and back else "fleet")

    def go_to(self, name: str, key: str = "") -> None:
        """Bring a view into sight soon; for use where nothing can be awaited."""
        self.run_worker(self.show_view(name, key))

    # Commands

    async def on_key(self, event: events.Key) -> None:
        """Call the command of a key that no widget took."""
        if len(self.screen_stack) > 1 or self.prompt.active:
            return
        command = self.registry.by_key(event.key, self._current)
        if command is not None:
            event.stop()
            await self.call_command(command)

    async def call_command(self, command: Command, argument: str = "") -> None:
        """Carry out a command, or say why it is not to be had."""
        why_not = self.why_not(command)
        if why_not:
            self.say(f"{command.name}: {why_not}", bad=True)
            return
        target = self._views[command.view] if command.view else self
        try:
            waiting = command.run(target, argument)
            if waiting is not None:
                self.run_worker(self._settle(command, waiting))
        except HeadError as error:
            self.say(f"{command.name}: {error}", bad=True)

    async def _settle(self, command: Command, waiting: object) -> None:
        try:
            await waiting  # type: ignore[misc]
        except HeadError as error:
            self.say(f"{command.name}: {error}", bad=True)

    def why_not(self, command: Command) -> str:
        """Return why a command is not to be had now, "" when it is."""
        if command.changes and self.readonly:
            return "this screen is read-only"
        if command.view and command.view != self._current:
            return f"in the {command.view} view only"
        return command.unavailable(self._views[command.view] if command.view else self)

    async def ask_head(self, request: Message) -> Done | Previewed:
        """Have the head carry out a request; raises HeadError when it cannot."""
        if self.link is None:
            raise HeadError("the head is not reached now")
        reply: Done | Previewed = await self.link.request(request)
        return reply

    def send(self, message: Message) -> None:
        """Send the head a message that asks for no answer; lost where there is no head."""
        if self.link is not None:
            self.run_worker(self.link.send(message))

    def follow_logs(self) -> None:
        """Have the head send what workers print, from now on and from any head met later."""
        if not self._wants_logs:
            self._wants_logs = True
            if self.link is not None:
                self.run_worker(self.link.send(SubscribeLogs(True)))

    # What a person is asked

    async def confirm(self, title: str, lines: Sequence[str], *, dangerous: bool = False) -> bool:
        """Ask whether to go on; for use in a command that is awaited."""
        choices = (Choice("n", "no"), Choice("y", "yes", dangerous=dangerous))
        return await self.push_screen_wait(Dialog(title, lines, choices)) == "y"

    async def action_quit(self) -> None:
        """Ask what is to become of the cluster, also on Textual's own way out."""
        if not self._leaving:
            self._leaving = True
            self.run_worker(self._leave())

    async def _leave(self) -> None:
        """Leave the cluster running, stop it, or stay."""
        try:
            if self.link is None:
                self.exit(ExitCode.NO_CLUSTER)
                return
            name = self.link.attached.name
            choices = [Choice("l", "leave it running"), Choice("s", "stop it", dangerous=True)]
            if self.readonly:
                choices.pop()
            choices.append(Choice("c", "cancel"))
            lines = (f"gputui attach {name} comes back to it.",)
            chosen = await self.push_screen_wait(Dialog(f"Leave {name}?", lines, choices))
            if chosen == "l":
                self.exit(ExitCode.DONE)
            elif chosen == "s":
                self.warn("stopping the cluster …")
                await self.link.request(Stop(0))
        except HeadError as error:
            self.say(str(error), bad=True)
        finally:
            self._leaving = False

    def _ask_person(self) -> None:
        """Show the oldest open question, one at a time; take it away when it was withdrawn."""
        if self._question is not None or self.readonly or not self.watched.questions:
            return
        asked = next(iter(self.watched.questions.values()))
        if asked.question not in self._put_off:
            self._question = asked.question
            self._question_dialog = QuestionDialog(asked)
            self.push_screen(self._question_dialog, self._answered)

    def _answered(self, text: str | None) -> None:
        number, self._question = self._question, None
        if number is None:
            return
        if text is None:
            self._put_off.add(number)
        elif number in self.watched.questions:
            del self.watched.questions[number]
            self.send(Answer(number, text or None))
        self._ask_person()

    def _withdraw(self, number: int) -> None:
        """Take away the dialog of a question that another face has answered."""
        if self._question == number and self._question_dialog is self.screen:
            self._question_dialog.dismiss(None)


def _kind(name: str) -> ViewKind:
    return next(kind for kind in VIEWS if kind.name == name)


def run_screen(
    open_link: OpenLink,
    *,
    readonly: bool = False,
    theme: str | None = None,
    ascii: bool = False,
) -> int:
    """Show the screen until it is left, and return the exit code.

    `open_link` is called once the first frame stands, and again when the head was lost.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        print("gputui: the screen needs a terminal; for one without, see --run", file=sys.stderr)
        return ExitCode.WRONG_USAGE
    if theme is None and os.environ.get("NO_COLOR"):
        theme = WITHOUT_COLOUR
    app = ScreenApp(open_link, readonly=readonly, theme=theme, ascii_only=ascii)
    code = app.run(mouse=not os.environ.get("SSH_CONNECTION"))
    return int(code or app.return_code or 0)
