"""The runs that a cluster knows: what frontends report of theirs, and those that the head started.

A run asked for on the screen is the headless command attached to this cluster, a child of the
head with a process group of its own: it survives a detach, and takes nothing along when it dies.
"""

import asyncio
import contextlib
import logging
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from gputui.errors import HeadError
from gputui.head.event_log import EventLog
from gputui.head.server import FrontendConnection
from gputui.process.child import ending
from gputui.process.search_path import own_python
from gputui.protocol.frontend import Cancelled, ReportRun, StartRun
from gputui.run import RUN_VARIABLE, new_id
from gputui.snapshot import RunState, RunStatus, Severity

logger = logging.getLogger(__name__)

KEPT = 50
TAIL_BYTES = 4_000
CANCEL_S = 10.0
"""How long a cancelled run may take before its processes are killed."""


@dataclass(slots=True)
class Child:
    """A run that the head started."""

    process: asyncio.subprocess.Process
    task: asyncio.Task[None]


class Runs:
    """All runs of one cluster, the newest last."""

    def __init__(
        self, name: str, cluster_id: str, event_log: EventLog, changed: Callable[[], None]
    ) -> None:
        self._name = name
        self._cluster_id = cluster_id
        self._event_log = event_log
        self._changed = changed
        self._runs: dict[str, RunStatus] = {}
        self._reporters: dict[str, FrontendConnection] = {}
        self._children: dict[str, Child] = {}

    @property
    def statuses(self) -> tuple[RunStatus, ...]:
        """The runs, oldest first."""
        return tuple(self._runs.values())

    @property
    def under_way(self) -> bool:
        """Whether any run has not ended."""
        return any(not run.state.ended for run in self._runs.values())

    def report(self, frontend: FrontendConnection, report: ReportRun) -> None:
        """Take what a frontend tells of its run."""
        before = self._runs.get(report.id)
        state = RunState(report.state)
        self._reporters[report.id] = frontend
        self._put(
            RunStatus(
                id=report.id,
                preset=report.preset,
                parameters=report.parameters,
                state=state,
                started_at=report.started_at,
                ended_at=time.time() if state.ended else None,
                done=report.done,
                total=report.total,
                stage=report.stage,
                summary=report.summary,
                result_json=report.result_json,
                restarts=before.restarts if before else 0,
                error_type=report.error_type,
            )
        )

    def frontend_left(self, frontend: FrontendConnection) -> None:
        """Give up the runs of a frontend that went before they ended."""
        for id, reporter in list(self._reporters.items()):
            if reporter is frontend:
                del self._reporters[id]
                if id not in self._children:
                    self._lose(id, "the command that ran it went away")

    def worker_restarted(self) -> None:
        """Count a restart for every run that is under way."""
        for id, run in self._runs.items():
            if not run.state.ended:
                self._runs[id] = replace(run, restarts=run.restarts + 1)

    async def start(self, request: StartRun) -> str:
        """Start a preset as a command of its own, and return the run's id."""
        id = new_id(request.preset)
        command = [*own_python("gputui"), "--attach", self._name, "--run", request.preset]
        for key, value in request.parameters:
            command += ["-p", f"{key}={value}"]
        process = await asyncio.create_subprocess_exec(
            *command,
            "--backend",
            request.backend,
            "--json",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
            env={**os.environ, "GPUTUI_CLUSTER": self._cluster_id, RUN_VARIABLE: id},
        )
        starting = RunStatus(id, request.preset, request.parameters, RunState.STARTING, time.time())
        self._children[id] = Child(process, asyncio.create_task(self._attend(id, process)))
        self._put(starting)
        return id

    async def cancel(self, id: str) -> None:
        """Ask whoever runs it to cancel; a child of the head that does not is killed.

        Raises HeadError when no such run is under way.
        """
        run = self._runs.get(id)
        if run is None or run.state.ended:
            raise HeadError(f"no run {id} is under way")
        if id in self._reporters:
            self._reporters[id].send(Cancelled(id))
        elif id in self._children:
            _signal(self._children[id].process, signal.SIGINT)
        if id in self._children:
            done, _ = await asyncio.wait({self._children[id].task}, timeout=CANCEL_S)
            if not done:
                _signal(self._children[id].process, signal.SIGKILL)

    async def stop(self) -> None:
        """End the runs that the head started."""
        children = list(self._children.values())
        for child in children:
            _signal(child.process, signal.SIGKILL)
        await asyncio.gather(*(child.task for child in children))

    async def _attend(self, id: str, process: asyncio.subprocess.Process) -> None:
        """Keep the last words of a child, and end its run with it."""
        assert process.stderr
        tail = b""
        while chunk := await process.stderr.read(TAIL_BYTES):
            tail = (tail + chunk)[-TAIL_BYTES:]
        status = await process.wait()
        self._children.pop(id, None)
        words = tail.decode("utf-8", "replace").strip().splitlines()
        self._lose(id, words[-1] if words else f"its command {ending(status)}")

    def _lose(self, id: str, why: str) -> None:
        """End a run that did not say how it ended."""
        run = self._runs.get(id)
        if run is not None and not run.state.ended:
            self._put(replace(run, state=RunState.LOST, ended_at=time.time(), summary=why))

    def _put(self, run: RunStatus) -> None:
        """Record a run, with an event when it starts or ends."""
        before = self._runs.get(run.id)
        self._runs[run.id] = run
        while len(self._runs) > KEPT:
            del self._runs[next(iter(self._runs))]
        if before is None or before.state is not run.state:
            bad = run.state in (RunState.FAILED, RunState.LOST)
            severity = Severity.ERROR if bad else Severity.INFO
            text = f"{run.preset}: {run.summary}" if run.summary else run.preset
            self._event_log.tell(severity, f"run {run.id}", run.state, text)
        self._changed()


def _signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    """Send a signal to a process and all it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)
