"""The runs of a simulated cluster: each is a frontend that reports how far its tasks are.

In place of the headless command that a head starts for a run; it attaches as that does.
"""

import asyncio
import contextlib
import signal
import time
from collections.abc import Awaitable, Callable

from gputui import presets
from gputui.client.head_connection import HeadConnection
from gputui.demo.simulated_scheduler import SimulatedScheduler
from gputui.demo.work import SimulatedRun
from gputui.errors import HeadError
from gputui.model.failure import Failure
from gputui.model.snapshot import RunState, RunStatus
from gputui.process.background import Background
from gputui.protocol.frontend import Cancelled, ReportRun, StartRun

REPORT_S = 1.0
FIRST_RUN_S, BETWEEN_RUNS_S = 2.0, 7.0
OWN_RUNS: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = (
    ("random-sum", (("size", "500000"), ("seed", "1"))),
    ("svd", (("rows", "16000000"), ("cols", "1000"))),
    ("matmul", (("size", "131072"), ("dtype", "float32"))),
    ("torch", (("steps", "2000"),)),
)
"""What runs by itself, over and over, so that there is something to see."""
FAILING, FAILS_AT = 2, 0.4
"""Which of them fails, with `failures`, and the share of its tasks that is done by then."""
FAILURE = Failure(
    "OutOfMemoryError", "11.2 GiB would not fit in 9.8 GiB", "use chunk_rows ≤ 40,000"
)

Attach = Callable[[str], Awaitable[HeadConnection]]


class RunProcess:
    """A run from its start to its end, as `head.runs` sees its child."""

    def __init__(self, run: SimulatedRun, scheduler: SimulatedScheduler, attach: Attach) -> None:
        self.last_log_lines: tuple[str, ...] = ()
        self.reason = ""
        self._run, self._scheduler, self._attach = run, scheduler, attach
        self._cancelled = asyncio.Event()
        self._tasks = Background(self._failed)
        scheduler.runs.insert(0, run)
        self._reporting = self._tasks.start(self._report_all(), f"run {run.id}")

    def send_signal(self, _number: signal.Signals) -> None:
        """Cancel it."""
        self._cancelled.set()

    async def wait(self) -> int | None:
        """Return 0 once it has ended."""
        await asyncio.wait([self._reporting])
        self._scheduler.finish(self._run)
        return 0

    async def end(self, grace_s: float, ask: signal.Signals | None) -> int | None:
        """Cancel it; a `grace_s` of 0 gives it no time to say so."""
        self._cancelled.set()
        if not grace_s:
            self._reporting.cancel()
        return await self.wait()

    async def _report_all(self) -> None:
        run, connection = self._run, await self._attach("run")
        self._tasks.start(self._listen(connection), "listening for the head")
        try:
            while not (report := self._report()).run.state.ended:
                await connection.send(report)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._cancelled.wait(), REPORT_S)
            await connection.send(report)
        finally:
            self._scheduler.finish(run)
            await connection.close()

    async def _listen(self, connection: HeadConnection) -> None:
        async for message in connection.messages():
            if isinstance(message, Cancelled):
                self._cancelled.set()

    def _report(self) -> ReportRun:
        run, state = self._run, RunState.RUNNING
        summary = result_json = ""
        failure = None
        if self._cancelled.is_set():
            state, summary = RunState.CANCELLED, "cancelled"
        elif run.fails and run.done >= FAILS_AT * run.total:
            state, failure = RunState.FAILED, FAILURE
        elif run.done >= run.total:
            state = RunState.DONE
            summary, result_json = run.result(time.time(), len(self._scheduler.workers))
        status = RunStatus(
            id=run.id,
            preset=run.preset,
            parameters=run.parameters,
            state=state,
            started_at=run.started_at,
            stage="" if state.ended else run.stage,
            done=run.done,
            total=run.total,
            summary=summary,
            result_json=result_json,
            failure=failure,
        )
        return ReportRun(status)

    def _failed(self, what: str, error: Exception) -> None:
        self.reason = f"failed: {what}: {error}"


class DemoRuns:
    """Starts runs: those that people ask for, and one after the other by itself."""

    def __init__(self, scheduler: SimulatedScheduler, attach: Attach, *, failures: bool) -> None:
        self._scheduler, self._attach, self._failures = scheduler, attach, failures
        self._own = 0

    def start(self, _name: str, _cluster_id: str, request: StartRun, id: str) -> RunProcess:
        """Start a run; raises PresetError where the request is wrong."""
        presets.parse(presets.get(request.preset), dict(request.parameters)).refuse_mistakes()
        workers = len(self._scheduler.workers)
        run = SimulatedRun(id, request.preset, request.parameters, time.time(), workers)
        if self._failures and self._own == FAILING + 1:
            run.fails, self._failures = True, False
        return RunProcess(run, self._scheduler, self._attach)

    async def go_on(self, connection: HeadConnection) -> None:
        """Begin a run of our own whenever none has run for a while, until cancelled."""
        idle_s, workers = 0.0, 0
        while True:
            await asyncio.sleep(1.0)
            before, workers = workers, len(self._scheduler.workers)
            idle = workers and workers == before and not self._scheduler.runs
            idle_s = idle_s + 1.0 if idle else 0.0
            if idle_s >= (BETWEEN_RUNS_S if self._own else FIRST_RUN_S):
                preset, parameters = OWN_RUNS[self._own % len(OWN_RUNS)]
                self._own += 1
                try:
                    await connection.request(StartRun(0, preset, parameters))
                except HeadError:
                    continue
