"""`--run PRESET`: a cluster, a computation on it, its result on stdout, and nothing left behind.

One event loop holds the head; the computation blocks in a thread of its own, since presets are
written against Dask's synchronous client.
"""

import asyncio
import contextlib
import gc
import logging
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, TextIO, cast

from gputui import runs
from gputui.client.head_connection import security
from gputui.errors import ExitCode, GputuiError
from gputui.model.snapshot import RunState
from gputui.presets import Figure, ParsedParameters
from gputui.presets.job import RunCancelledError, explained
from gputui.presets.outcome import json_text
from gputui.runs.noted_stream import NotedStream
from gputui.runs.output import Output, failed_hosts, print_failure, print_out, write
from gputui.runs.progress import TaskCounts
from gputui.runs.request import RunRequest
from gputui.runs.run import OngoingRun, OpenCluster, RunEnd, RunStage, recorded_run

if TYPE_CHECKING:
    from gputui.runs.execution import RunProgress, RunResult

CANCEL_S = 5.0
"""How long a computation may take to see that it was cancelled."""


@dataclass(frozen=True, slots=True)
class PresetRun:
    """A preset, and what becomes of its result."""

    parameters: ParsedParameters
    output: Output


class StageCounts:
    """Counts a preset's stages: its futures or, of a single one, the tasks behind it."""

    def __init__(self) -> None:
        self.tasks = TaskCounts()
        self._name = ""

    def shown(self, step: "RunProgress") -> RunStage:
        """Return how far a stage is."""
        if step.stage != self._name:
            self._name = step.stage
            self.tasks.begin()
        done, total = self.tasks.counts
        if step.total != 1 or total <= 1:
            return RunStage(step.stage, step.done, step.total)
        return RunStage(step.stage, total if step.done else done, total)


async def run_preset(preset_run: PresetRun, request: RunRequest, open_cluster: OpenCluster) -> int:
    """Compute and print; returns the exit code, raises GputuiError."""
    loading = asyncio.create_task(asyncio.to_thread(_load_distributed))
    try:
        async with recorded_run(request, open_cluster) as ongoing:
            return await ongoing.finish(await _compute(preset_run, ongoing))
    finally:
        await asyncio.wait({loading})


def _load_distributed() -> None:
    """Import the computation's libraries while the cluster starts."""
    gc.disable()  # imports make much and drop little: collections are a tenth of their time
    try:
        import distributed  # noqa: F401

        import gputui.runs.execution  # noqa: F401
    finally:
        gc.enable()
    # The head reports a lost connection more clearly than the client's traceback.
    for part in ("client", "batched"):
        logging.getLogger(f"distributed.{part}").setLevel(logging.CRITICAL)


async def _compute(preset_run: PresetRun, ongoing: OngoingRun) -> RunEnd:
    """Compute in a thread, until it is done, cancelled from anywhere, or the cluster is gone."""
    cancel = Event()
    loop = asyncio.get_running_loop()

    stages = StageCounts()
    ongoing.looked = stages.tasks.looked

    def report(step: "RunProgress") -> None:
        loop.call_soon_threadsafe(lambda: ongoing.progressed(stages.shown(step)))

    computing = _in_thread(partial(_compute_here, preset_run, ongoing, report, cancel))
    try:
        return await ongoing.attend(computing)
    except (asyncio.CancelledError, GputuiError):
        cancel.set()
        done, _ = await asyncio.wait({computing}, timeout=CANCEL_S)
        for each in done:
            each.exception()  # what is raised here says more
        raise


def _in_thread(work: Callable[[], RunEnd]) -> "asyncio.Future[RunEnd]":
    """Call in a thread that is not joined at exit, in case it does not notice a cancellation."""
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[RunEnd] = loop.create_future()

    def tell(set_it: Callable[[Any], None], value: Any) -> None:
        if not outcome.done():
            set_it(value)

    def call() -> None:
        answer: tuple[Callable[[Any], None], Any]
        try:
            answer = (outcome.set_result, work())
        except BaseException as error:
            answer = (outcome.set_exception, error)
        with contextlib.suppress(RuntimeError):  # the loop is closed: the command has ended
            loop.call_soon_threadsafe(tell, *answer)

    Thread(target=call, name="computing", daemon=True).start()
    return outcome


def _compute_here(
    preset_run: PresetRun,
    ongoing: OngoingRun,
    report: Callable[["RunProgress"], None],
    cancel: Event,
) -> RunEnd:
    """Compute on the cluster with a client of its own, which its arrays live with; blocks."""
    from distributed import Client

    from gputui.runs.execution import execute

    connection = ongoing.connection
    with (
        explained(preset_run.parameters.preset.name),
        Client(connection.address, security=security(connection), set_as_default=False) as client,
    ):
        with _words_noted(ongoing):
            result = execute(
                client,
                preset_run.parameters.preset,
                preset_run.parameters,
                backend=ongoing.request.backend,
                report=report,
                cancel=cancel,
                keep_arrays=preset_run.output.save is not None,
                report_file=preset_run.output.report,
            )

        def fetch(block: Any) -> Any:
            if cancel.is_set():
                raise RunCancelledError("cancelled while saving")
            return client.compute(block, **result.placement).result()

        return _put_out(preset_run, ongoing, result, fetch)


@contextlib.contextmanager
def _words_noted(ongoing: OngoingRun) -> Iterator[None]:
    """Record a preset's output; with `--json` it goes to stderr, as stdout is for one object.

    Output of a run started on the screen goes to its log only.
    """
    stream = sys.stderr if ongoing.request.as_json else sys.stdout
    noted = NotedStream(stream, ongoing.recording.note)
    with contextlib.redirect_stdout(cast(TextIO, noted)):
        try:
            yield
        finally:
            noted.finish()


def _put_out(
    preset_run: PresetRun, ongoing: OngoingRun, result: "RunResult", fetch: Callable[[Any], Any]
) -> RunEnd:
    """Print, draw and save a run's result; if that fails, the record still has it."""
    printed = result.to_json(failed_hosts(ongoing.settled), ongoing.events.restarts)
    ongoing.recording.keep(printed | result.extras())
    saved: list[Path] = []
    error = None
    ongoing.quieten()
    try:
        if not ongoing.request.as_json:
            print_out(_for_people(result, preset_run.output.draw))
        with explained("saving"):
            for path in write(preset_run.output, result, fetch):
                saved.append(path)
                if not ongoing.request.quiet:
                    print(f"gputui: wrote {path}", file=sys.stderr)
    except RunCancelledError:
        raise
    except GputuiError as failed:
        error = failed
        print(f"gputui: {failed}", file=sys.stderr)
    if ongoing.request.as_json and error:
        print_failure(ongoing.request, error)
    elif ongoing.request.as_json:
        print_out(json_text(printed))
    return RunEnd(
        kept=printed | result.extras(),
        summary="" if error else _summary(result),
        saved=tuple(str(path.absolute()) for path in saved),
        exit_code=ExitCode.COMPUTATION_FAILED if error else ExitCode.DONE,
        state=RunState.FAILED if error else RunState.DONE,
        error=error,
    )


def _for_people(result: "RunResult", draw: Callable[[Figure], str] | None) -> str:
    """Return a result, its figure, and where it was computed."""
    lines = [runs.text(result.result, result.units)]
    if draw and result.figure:
        lines.append(f"\n{draw(result.figure)}\n")
    where = f"{len(result.workers)} worker" + ("s" if len(result.workers) > 1 else "")
    lines.append(f"{result.preset} on {where} ({result.backend}): {result.elapsed_s:.2f} s")
    return "\n".join(lines)


def _summary(result: "RunResult") -> str:
    """Return a result in a line."""
    said = runs.brief(result.result, result.units)
    return f"{said}, {result.elapsed_s:.2f} s" if said else f"{result.elapsed_s:.2f} s"
