"""Ask the person: whether to go on, how to leave, and the head's questions.

The head's questions are shown one at a time, the oldest first; escape puts one off for this
screen, and an answer given on another screen takes the dialog away here. So are those of the
machine of a head elsewhere, which asks this screen alone when it is logged in to again.
"""

import asyncio
import os
import time
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from gputui.errors import ExitCode, HeadError
from gputui.model.snapshot import RunState, RunStatus, Snapshot
from gputui.protocol.frontend import Answer, Asked, Stop
from gputui.tui.dialogs.modal import Choice, Dialog, Fetch, Lines, QuestionDialog
from gputui.tui.rendering import format as fmt

if TYPE_CHECKING:
    from gputui.tui.app import ScreenApp

LOGIN = 0
"""The number of a question of the head's machine; a head counts its own from 1."""
PUT_OFF_S = 30.0
"""After so long a login whose question was put off is tried again, without asking: its answer may
be known by now, from ssh-agent or from ssh in another terminal."""


class AskingLogin(Protocol):
    """The machine of a head elsewhere."""

    login: str
    """As it was named."""

    def ask_on_screen(self, ask: Callable[[Asked], Coroutine[Any, Any, str | None]]) -> None:
        """Answer the login's questions on reconnecting with `ask`."""


def under_way(snapshot: Snapshot) -> list[RunStatus]:
    """Return the runs that have not ended."""
    return [run for run in snapshot.runs if not run.state.ended]


def concerned(snapshot: Snapshot, pid: int) -> Iterator[str]:
    """Yield a line for each run under way and each session but that of the process `pid`."""
    for run in under_way(snapshot):
        share = f" {run.done / run.total:.0%}" if run.total else ""
        stage = run.stage or (run.state.value if run.state is RunState.STARTING else "")
        since = fmt.elapsed(snapshot.taken_at - run.started_at)
        yield f"run {run.preset}{share}, {' '.join(filter(None, (stage, since)))}"
    for session in snapshot.sessions:
        if session.pid != pid and session.frontend != "run":  # its run was named above
            since = fmt.age(snapshot.taken_at - session.attached_at)
            yield f"attached: {session}, for {since}"


def left_running(name: str) -> str:
    """Return how to come back to a cluster that goes on."""
    return f"{name} goes on; gputui attach {name} comes back, gputui down {name} stops it."


def ended(name: str, reason: str, at: float, *, by_us: bool, left: str = "") -> str:
    """Say how a cluster ended; `left` is the part that could not be reached."""
    if by_us:
        return f"{name} is stopped; {left or 'nothing is left of it.'}"
    clock = time.strftime("%H:%M:%S", time.localtime(at))
    return f"{name} ended at {clock}: {reason}{f'; {left}' if left else ''}"


class Person:
    """The person at the screen."""

    def __init__(self, app: "ScreenApp") -> None:
        self._app = app
        self.stopping = False
        """Whether this person stopped the cluster."""
        self._leaving = False
        self._shown: QuestionDialog | None = None
        self._put_off: set[int] = set()
        self._login_answer: asyncio.Future[str | None] | None = None

    async def confirm(self, title: str, lines: Lines | Fetch, *, dangerous: bool = False) -> bool:
        """Ask whether to go on; for use in a command that is awaited.

        Raises HeadError where lines to fetch cannot be had.
        """
        choices = (Choice("n", "no"), Choice("y", "yes", dangerous=dangerous))
        dialog = Dialog(title, lines, choices)
        chosen = await self._app.ask(dialog)
        if dialog.failure is not None and chosen is None:
            raise dialog.failure
        return chosen == "y"

    async def leave(self) -> None:
        """Leave the cluster running, stop it, or stay; asked once, however often it is called."""
        if self._leaving:
            return
        self._leaving = True
        try:
            await self._leave()
        except HeadError as error:
            self._app.say(str(error), bad=True)
        finally:
            self._leaving = False

    async def _leave(self) -> None:
        app, snapshot = self._app, self._app.watched.snapshot
        if app.head.connection is None or app.head.lost:
            app.closing_text = app.head.sentence()
            app.exit(ExitCode.NO_CLUSTER)
            return
        name = app.head.connection.attached.name
        if app.login is not None:
            name = f"{app.login.login}:{name}"
        chosen = await app.ask(self._farewell(name, snapshot))
        if chosen == "l":
            simulated = snapshot is not None and snapshot.simulated
            app.closing_text = "" if simulated else left_running(name)
            app.exit(ExitCode.DONE)
        elif chosen == "s":
            await self.stop(asked=not (snapshot and list(concerned(snapshot, os.getpid()))))

    def _farewell(self, name: str, snapshot: Snapshot | None) -> Dialog:
        """Return the question on leaving; a simulated cluster ends with its screen."""
        ways = [Choice("l", "leave it running")]
        lines = [f"gputui attach {name} comes back to it."]
        if snapshot is not None and snapshot.simulated:
            ways = [Choice("l", "leave")]
            lines = ["It is simulated, and ends with this screen."]
        elif not self._app.readonly:
            ways.append(Choice("s", "stop it", dangerous=True))
        if snapshot is not None:
            lines += concerned(snapshot, os.getpid())
        return Dialog(f"Leave {name}?", lines, [*ways, Choice("c", "cancel")])

    async def stop(self, *, asked: bool = False) -> None:
        """Stop the cluster after a confirmation that names the losses and the attached people."""
        app, snapshot = self._app, self._app.watched.snapshot
        if snapshot is None or app.head.connection is None:
            raise HeadError("the head does not answer")
        lines = ["Every worker ends, and the results they hold are lost."]
        if runs := len(under_way(snapshot)):
            lines.append(f"{'This run is' if runs == 1 else 'These runs are'} cancelled:")
        lines += concerned(snapshot, os.getpid())
        if asked or await self.confirm(f"Stop {snapshot.name}?", lines, dangerous=True):
            self.stopping = True
            app.warn("stopping the cluster …")
            await app.head.request(Stop(0))

    # What the head asks

    def hear(self, asked: Asked) -> None:
        """Add or withdraw a question, and show the open one."""
        shown = self._shown
        meant = shown is not None and shown.number == asked.question
        if asked.withdrawn and meant and shown is self._app.screen:
            shown.dismiss(None)
        self.show_question()

    def show_question(self) -> None:
        """Show the oldest open question, unless something else is being asked or typed."""
        app = self._app
        if app.busy_asking:
            return
        asked = next((q for q in self._open if q.question not in self._put_off), None)
        if asked is not None:
            self._shown = QuestionDialog(asked)
            app.push_screen(self._shown, self._answered)

    @property
    def asked(self) -> bool:
        """Whether this screen may answer a question that is open."""
        return any(self._open)

    @property
    def login_asks(self) -> bool:
        """Whether the head's machine waits for an answer."""
        return LOGIN in self._app.watched.questions

    @property
    def _open(self) -> Iterator[Asked]:
        for number, asked in self._app.watched.questions.items():
            if number == LOGIN or not self._app.readonly:
                yield asked

    def _answered(self, text: str | None) -> None:
        shown, self._shown = self._shown, None
        if shown is not None and shown.number in self._app.watched.questions:
            self._settle(shown.number, text)
        self.show_question()

    def _settle(self, number: int, text: str | None) -> None:
        """Put a question off, or send its answer; a login that was denied asks on request only."""
        if text is None or (number == LOGIN and not text):
            self._put_off.add(number)
        if text is None:
            return
        del self._app.watched.questions[number]
        if number != LOGIN:
            self._app.head.send(Answer(number, text or None))
        elif self._login_answer is not None and not self._login_answer.done():
            self._login_answer.set_result(text or None)

    async def answer_login(self, asked: Asked) -> str | None:
        """Forward a question of the head's machine to the person; None for no, or later."""
        asked = replace(asked, question=LOGIN)
        answer = self._login_answer = asyncio.get_running_loop().create_future()
        self._app.watched.ask(asked)
        self._app.call_later(self.show_question)
        try:
            while True:
                await asyncio.wait([answer], timeout=PUT_OFF_S)
                if answer.done() or LOGIN in self._put_off:
                    return answer.result() if answer.done() else None
        finally:
            withdrawn = replace(asked, withdrawn=True)
            self._app.watched.ask(withdrawn)
            self._app.call_later(self.hear, withdrawn)

    def forget(self) -> None:
        """Begin again, with another head or login, whose questions are others."""
        self._put_off.clear()

    def ask_again(self) -> None:
        """Show the postponed questions."""
        self._put_off.clear()
        self.show_question()
