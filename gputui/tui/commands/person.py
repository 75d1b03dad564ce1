"""Ask the person: what to show, whether to go on, how to leave, and the head's questions.

The head's questions are shown one at a time, the oldest first; escape puts one off for this
screen, and an answer given on another screen takes the dialog away here. So are those of the
machine of a head elsewhere, which asks this screen alone when it is logged in to again.
"""

import asyncio
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from gputui.errors import ExitCode, HeadError
from gputui.model.snapshot import Snapshot
from gputui.protocol.frontend import Answer, Asked, KeepWatching, Stop
from gputui.tui.dialogs import (
    Choice,
    Dialog,
    QuestionDialog,
    confirm,
)
from gputui.tui.frame import Frame
from gputui.tui.rendering import format as fmt
from gputui.tui.watched import LOGIN

PUT_OFF_S = 30.0
"""After so long a login whose question was put off is tried again, without asking: its answer may
be known by now, from ssh-agent or from ssh in another terminal."""


def concerned(snapshot: Snapshot, pid: int) -> Iterator[str]:
    """Yield a line for each run under way and each session but that of the process `pid`."""
    for run in snapshot.runs:
        if not run.state.ended:
            share = f" {run.done / run.total:.0%}" if run.total else ""
            since = fmt.elapsed(snapshot.taken_at - run.started_at)
            yield f"run {run.preset}{share}, {run.stage or run.state.value} {since}"
    for session in snapshot.sessions:
        if session.pid != pid and session.frontend != "run":  # its run was named above
            since = fmt.age(snapshot.taken_at - session.attached_at)
            yield f"attached: {session}, for {since}"


class Person:
    """The person at the screen."""

    def __init__(self, app: Frame) -> None:
        self._app = app
        self.stopping = False
        """Whether this person stopped the cluster."""
        self._put_off: set[int] = set()
        self._login_answer: asyncio.Future[str | None] | None = None

    async def leave(self) -> None:
        """Ask whether to leave the cluster running, stop it, or stay."""
        app, snapshot = self._app, self._app.live.snapshot
        if len(app.screen_stack) > 1:
            return
        if app.head.connection is None or app.head.lost:
            app.closing_text = app.head.sentence()
            app.exit(ExitCode.NO_CLUSTER)
            return
        name = f"{app.login}:" * bool(app.login) + app.head.connection.attached.name
        goes_on = not (snapshot.ends_with_screens or snapshot.simulated)
        ways = [Choice("l", "leave it running" if goes_on else "leave")]
        lines = [f"gputui attach {name} comes back to it."]
        if snapshot.ends_with_screens:
            lines = ["It only watches, and ends with its last screen unless it is kept."]
            ways += [] if app.readonly else [Choice("k", "keep watching")]
        elif snapshot.simulated:
            lines = ["It is simulated, and ends with this screen."]
        elif not (app.readonly or app.playback):
            ways.append(Choice("s", "stop it", dangerous=True))
        lines += concerned(snapshot, os.getpid())
        chosen = await app.ask(Dialog(f"Leave {name}?", lines, [*ways, Choice("c", "cancel")]))
        if chosen == "k":
            await app.head.request(KeepWatching(0))
        if chosen == "k" or (chosen == "l" and goes_on):
            app.closing_text = (
                f"{name} goes on; gputui attach {name} comes back, gputui down {name} stops it."
            )
        now = app.live.snapshot  # somebody may have come meanwhile
        alone = not any(concerned(now, os.getpid()))
        if chosen == "s" or (
            chosen == "l" and alone and now.ends_with_screens and not app.readonly
        ):
            await self.stop(asked=alone)
        elif chosen in ("l", "k"):
            app.exit(ExitCode.DONE)

    async def stop(self, *, asked: bool = False) -> None:
        """Stop the cluster after a confirmation that names the losses and the attached people."""
        app, snapshot = self._app, self._app.live.snapshot
        if app.head.connection is None:
            raise HeadError("the head does not answer")
        lines = ["Every worker ends, and the results they hold are lost."]
        if runs := sum(not run.state.ended for run in snapshot.runs):
            lines.append(f"{'This run is' if runs == 1 else 'These runs are'} cancelled:")
        lines += concerned(snapshot, os.getpid())
        if asked or await confirm(app, f"Stop {snapshot.name}?", lines, dangerous=True):
            self.stopping = True
            app.top.warn("stopping the cluster …")
            await app.head.request(Stop(0))

    def ended(self, reason: str) -> str:
        """Return how the cluster ended, and the part that could not be reached."""
        name, events = self._app.live.snapshot.name, self._app.live.events
        unreached = bool(events) and events[-1].kind == "stopping" and events[-1].severity != "info"
        left = events[-1].text if unreached else ""
        if self.stopping:
            return f"{name} is stopped; {left or 'nothing is left of it.'}"
        clock = time.strftime("%H:%M:%S", time.localtime(self._app.head.clock()))
        return f"{name} ended at {clock}: {reason}{f'; {left}' if left else ''}"

    # What the head asks

    def hear(self, asked: Asked) -> None:
        """Add or withdraw a question, and show the open one."""
        questions, shown = self._app.live.questions, self._app.screen
        if not asked.withdrawn:
            questions[asked.question] = asked
        else:
            questions.pop(asked.question, None)
            if isinstance(shown, QuestionDialog) and shown.number == asked.question:
                shown.dismiss(None)
        self.show_question()

    def show_question(self) -> None:
        """Show the oldest open question, unless something else is being asked or typed."""
        if self._app.busy_asking:
            return
        asked = next((each for each in self.asked if each.question not in self._put_off), None)
        if asked is not None:
            self._app.push_screen(QuestionDialog(asked), partial(self._answered, asked.question))

    @property
    def asked(self) -> list[Asked]:
        """The open questions that this screen may answer."""
        questions = self._app.live.questions.values()
        return [each for each in questions if each.question == LOGIN or not self._app.readonly]

    def _answered(self, number: int, text: str | None) -> None:
        """Put a question off, or send its answer; a login that was denied asks on request only."""
        questions = self._app.live.questions
        if number in questions:
            if text is None or (number == LOGIN and not text):
                self._put_off.add(number)
            if text is not None:
                del questions[number]
                if number != LOGIN:
                    self._app.head.send(Answer(number, text or None))
                elif self._login_answer is not None and not self._login_answer.done():
                    self._login_answer.set_result(text or None)
        self.show_question()

    async def answer_login(self, asked: Asked) -> str | None:
        """Forward a question of the head's machine to the person; None for no, or later."""
        asked = replace(asked, question=LOGIN)
        answer = self._login_answer = asyncio.get_running_loop().create_future()
        self._app.call_later(self.hear, asked)
        try:
            while True:
                await asyncio.wait([answer], timeout=PUT_OFF_S)
                if answer.done() or LOGIN in self._put_off:
                    return answer.result() if answer.done() else None
        finally:
            self._app.call_later(self.hear, replace(asked, withdrawn=True))

    def forget(self) -> None:
        """Begin again, with another head or login, whose questions are others."""
        self._put_off.clear()

    def ask_again(self) -> None:
        """Show the postponed questions."""
        self._put_off.clear()
        self.show_question()
