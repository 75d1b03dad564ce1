"""The runs that a cluster knows: what frontends report of theirs, and those that the head started.

A run asked for on the screen is the headless command attached to this cluster, a child of the
head with a process group of its own: it survives a detach, and takes nothing along when it dies.
"""

import asyncio
import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from gputui.errors import HeadError
from gputui.head.broadcasts import EventLog
from gputui.head.server import FrontendConnection
from gputui.model.snapshot import RunState, RunStatus, Severity
from gputui.process.background import Background
from gputui.process.child import Child
from gputui.process.search_path import own_python
from gputui.protocol.frontend import (
    RUN_VARIABLE,
    Cancelled,
    ReportRun,
    StartRun,
    new_run_id,
)
from gputui.protocol.programs import exec_words, is_program

KEPT = 50
"""How many runs that have ended a cluster knows."""
CANCEL_S = 10.0
"""How long a cancelled run may take before its processes are killed."""

STOP_S = 3.0
"""How long runs may take to end with their cluster, and once more after SIGINT."""


StartChild = Callable[[str, str, StartRun, str], Child]
"""Starts a run on the cluster of this name and id, with an id of its own."""


def start_run(name: str, cluster_id: str, request: StartRun, id: str) -> Child:
    """Start a run as a command attached to the cluster."""
    command = [*own_python("gputui"), "--attach", name, "--json"]
    if is_program(request.preset):
        command += exec_words(request.parameters)
    else:
        command += ["--run", request.preset, "--backend", request.backend]
        command += [word for key, value in request.parameters for word in ("-p", f"{key}={value}")]
    cwd = Path(request.cwd)
    return Child(
        command,
        cwd=str(cwd if cwd.is_absolute() and cwd.is_dir() else Path.home()),
        env={**os.environ, "GPUTUI_CLUSTER": cluster_id, RUN_VARIABLE: f"{id} {time.time()}"},
        own_session=True,
    )


class Runs:
    """All runs of one cluster, the newest last."""

    def __init__(
        self,
        start_child: Callable[[StartRun, str], Child],
        event_log: EventLog,
        changed: Callable[[], None],
    ) -> None:
        self._start_child = start_child
        self._event_log = event_log
        self._changed = changed
        self.by_id: dict[str, RunStatus] = {}
        self._reporters: dict[str, FrontendConnection] = {}
        self._children: dict[str, Child] = {}
        self._tasks = Background(event_log.failed)

    @property
    def under_way(self) -> bool:
        """Whether any run has not ended."""
        return any(not run.state.ended for run in self.by_id.values())

    def runs_one_of_ours(self, frontend: FrontendConnection) -> bool:
        """Return whether a frontend is the command of a run that the head started."""
        return any(self._reporters.get(id) is frontend for id in self._children)

    def report(self, frontend: FrontendConnection, report: ReportRun) -> None:
        """Take a frontend's report of its run."""
        run = report.run
        before = self.by_id.get(run.id, replace(run, restarts=0, user=frontend.session.user))
        self._reporters[run.id] = frontend
        self._put(
            replace(
                run,
                started_at=before.started_at,
                ended_at=time.time() if run.state.ended else None,
                restarts=before.restarts,
                user=before.user,
            )
        )

    def frontend_left(self, frontend: FrontendConnection) -> None:
        """Give up the runs of a frontend that went before they ended."""
        for id, reporter in list(self._reporters.items()):
            if reporter is frontend:
                del self._reporters[id]
                if id not in self._children:
                    self._end(id, RunState.LOST, "the command that ran it went away")

    def worker_restarted(self) -> None:
        """Count a restart for every run that is under way."""
        for id, run in self.by_id.items():
            if not run.state.ended:
                self.by_id[id] = replace(run, restarts=run.restarts + 1)

    async def start(self, request: StartRun, user: str) -> str:
        """Start a preset as a command of its own, and return the run's id."""
        id = new_run_id(request.preset)
        child = self._children[id] = self._start_child(request, id)
        self._tasks.start(self._attend(id, child), f"attending to run {id}")
        self._put(
            RunStatus(
                id,
                request.preset,
                request.parameters,
                RunState.STARTING,
                time.time(),
                user=user,
                cwd=request.cwd,
                backend=request.backend,
            )
        )
        return id

    async def cancel(self, id: str) -> None:
        """Ask the frontend that runs it to cancel; a child of the head that does not is killed.

        Raises HeadError when no such run is under way.
        """
        run = self.by_id.get(id)
        if run is None or run.state.ended:
            raise HeadError(f"no run {id} is under way")
        if id in self._reporters:
            self._reporters[id].send(Cancelled(id))
        elif id in self._children:
            self._children[id].send_signal(signal.SIGINT)
            self._end(id, RunState.CANCELLED, "cancelled before it began")
        if id in self._children:
            await self._children[id].end(CANCEL_S, ask=None)

    async def stop(self) -> None:
        """End the runs that the head started; their commands have heard of it and record it."""
        await asyncio.gather(*(self._stop(*each) for each in self._children.items()))
        await self._tasks.finish(CANCEL_S)

    async def _stop(self, id: str, child: Child) -> None:
        if id in self._reporters:
            await child.wait(STOP_S)
        await child.end(STOP_S, signal.SIGINT)

    async def _attend(self, id: str, child: Child) -> None:
        """End a run that has not ended with its command, whose last line is the reason."""
        await child.wait()
        self._children.pop(id, None)
        words = [line for line in child.last_log_lines if line.strip()]
        self._end(id, RunState.LOST, words[-1].strip() if words else f"its command {child.reason}")

    def _end(self, id: str, state: RunState, why: str) -> None:
        """End a run that is under way."""
        run = self.by_id.get(id)
        if run is not None and not run.state.ended:
            self._put(replace(run, state=state, ended_at=time.time(), summary=why))

    def _put(self, run: RunStatus) -> None:
        """Record a run, with an event when it starts or ends."""
        before = self.by_id.get(run.id)
        self.by_id[run.id] = run
        ended = [each for each in self.by_id.values() if each.state.ended]
        for each in sorted(ended, key=lambda run: run.ended_at or 0.0)[:-KEPT]:
            del self.by_id[each.id]
        if before is None or before.state is not run.state:
            bad = run.state in (RunState.FAILED, RunState.LOST)
            severity = Severity.ERROR if bad else Severity.INFO
            text = f"{run.preset}: {run.words}" if run.words else run.preset
            self._event_log.tell(severity, f"run {run.id}", run.state, text)
        self._changed()
