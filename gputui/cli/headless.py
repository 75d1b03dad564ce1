"""`--run PRESET`: a cluster, a computation on it, its result on stdout, and nothing left behind.

One event loop holds the head; the computation blocks in a thread of its own, since presets are
written against Dask's synchronous client. The head is told how it goes, so that every face sees
the run, and any of them may cancel it.
"""

import asyncio
import contextlib
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

from gputui import __version__, runs
from gputui.cli.clusters import chosen_cluster
from gputui.cli.progress import Progress, progress
from gputui.cluster import HeadLink, check_enough, failures, security
from gputui.errors import GputuiError, HeadError, RunError
from gputui.presets import Preset, Value
from gputui.presets.job import RunCancelledError
from gputui.protocol import AwaitWorkers, Cancelled, ReportRun, SchedulerReady, Settled, Stopped
from gputui.snapshot import HostStatus, RunState

if TYPE_CHECKING:
    from gputui.run import RunProgress, RunResult

REPORT_EVERY_S = 0.5
"""How often the head is told how far the run is."""

Hold = Callable[[], contextlib.AbstractAsyncContextManager[HeadLink]]
"""Takes hold of a cluster, started or found, and lets go of it."""


@dataclass(frozen=True, slots=True)
class Output:
    """What becomes of the result."""

    as_json: bool = False
    quiet: bool = False
    save: Path | None = None
    report: Path | None = None
    figure: Path | None = None


@dataclass(frozen=True, slots=True)
class Work:
    """What is to be computed, and on how much of a cluster."""

    preset: Preset
    preset_name: str
    parameters: Mapping[str, Value]
    given: Mapping[str, str]
    """The parameters as they were typed, for the head and for people."""
    backend: str
    hosts: str
    """As they were given, for the record."""
    workers: int | None
    min_workers: int
    output: Output


@dataclass(frozen=True, slots=True)
class Finished:
    """A run that ended well, and the hosts that were not there."""

    result: "RunResult"
    failed_hosts: tuple[dict[str, str], ...]


async def compute(work: Work, hold: Hold) -> None:
    """Compute and print; raises GputuiError as it comes, printed as JSON too where asked."""
    record = runs.begin(
        work.preset_name,
        work.parameters,
        backend=work.backend,
        hosts=work.hosts,
        version=__version__,
        id=os.environ.pop(runs.RUN_VARIABLE, ""),
    )
    try:
        with progress(work.output.quiet) as bars:
            finished = await _on_cluster(work, hold, record, bars)
    except asyncio.CancelledError:
        runs.end(record, RunState.CANCELLED)
        raise
    except GputuiError as error:
        runs.end(record, _end_of(error), error=error)
        if work.output.as_json:
            print(json.dumps(_failure(work, error)))
        raise
    runs.end(
        record, RunState.DONE, result=finished.result.to_record(failed_hosts=finished.failed_hosts)
    )


async def _on_cluster(work: Work, hold: Hold, record: runs.RunRecord, bars: Progress) -> Finished:
    """Take hold of a cluster, compute, print what came of it, and let go."""
    bars.show("starting", 0, 0)
    loading = asyncio.create_task(asyncio.to_thread(_load_distributed))
    async with hold() as link:
        with contextlib.suppress(asyncio.CancelledError):
            await loading
        settled = await link.request(AwaitWorkers(0, work.workers))
        assert isinstance(settled, Settled)
        failed = tuple(_failed_host(host) for host in settled.failed_hosts)
        _warn(settled, work)
        result = await _computed(work, link, record, bars)
        finished = Finished(result, failed)
        await asyncio.to_thread(_put_out, work, finished)
    return finished


def _load_distributed() -> None:
    """Import what the computation needs, while the cluster starts."""
    import distributed  # noqa: F401

    import gputui.run  # noqa: F401


def _warn(settled: Settled, work: Work) -> None:
    """Say which hosts and workers are missing; raise ClusterError where too few are left."""
    check_enough(settled, work.min_workers)
    for problem in failures(settled):
        print(f"gputui: {problem}", file=sys.stderr)


async def _computed(
    work: Work, link: HeadLink, record: runs.RunRecord, bars: Progress
) -> "RunResult":
    """Compute in a thread, until it is done, cancelled from anywhere, or the cluster is gone."""
    reporter = Reporter(link, work, record, bars)
    await reporter.tell(RunState.RUNNING)
    computing = asyncio.create_task(
        asyncio.to_thread(_compute_here, work, link, reporter.progressed, reporter.cancel)
    )
    watching = asyncio.create_task(_watch(link, record.id))
    try:
        await asyncio.wait({computing, watching}, return_when=asyncio.FIRST_COMPLETED)
        if not computing.done():
            watching.result()
        result = await computing
    except asyncio.CancelledError:
        reporter.cancel.set()
        with contextlib.suppress(GputuiError):
            await computing
        await reporter.tell(RunState.CANCELLED)
        raise
    except GputuiError as error:
        reporter.cancel.set()
        if not computing.done():
            await asyncio.wait({computing}, timeout=5)
        await reporter.tell(_end_of(error), error=error)
        raise
    finally:
        watching.cancel()
    await reporter.tell(RunState.DONE, result=result)
    return result


def _end_of(error: GputuiError) -> RunState:
    """Return how a run ended that raised this."""
    return RunState.CANCELLED if isinstance(error, RunCancelledError) else RunState.FAILED


async def _watch(link: HeadLink, run_id: str) -> None:
    """Return never; raises RunCancelledError, or HeadError or RunError when the cluster ends."""
    started = bool(link.attached.address)
    async for message in link.messages():
        match message:
            case SchedulerReady() if not started:
                started = True
            case Cancelled(id=id_) if id_ == run_id:
                raise RunCancelledError("cancelled from another face")
            case Stopped(reason=reason):
                raise HeadError(f"the cluster was stopped: {reason}")
            case SchedulerReady():
                raise RunError("the scheduler was lost, and with it what it had computed")
    raise HeadError("the cluster's head is gone")


def _compute_here(
    work: Work, link: HeadLink, report: Callable[["RunProgress"], None], cancel: Event
) -> "RunResult":
    """Compute on the cluster with a client of its own; blocks."""
    from distributed import Client

    from gputui.run import execute

    with Client(link.address, security=security(link), set_as_default=False) as client:
        return execute(
            client,
            work.preset,
            work.parameters,
            backend=work.backend,
            report=report,
            cancel=cancel,
            keep_arrays=work.output.save is not None,
            report_file=work.output.report,
        )


def _put_out(work: Work, finished: Finished) -> None:
    """Print, draw and save what a run came to; before its cluster, and its arrays, are gone."""
    result, output = finished.result, work.output
    if output.save:
        for path in runs.save_arrays(output.save, result.arrays):
            print(f"gputui: saved {path}", file=sys.stderr)
    if output.figure and result.figure:
        runs.draw_png(result.figure, output.figure)
        print(f"gputui: drew {output.figure}", file=sys.stderr)
    if output.as_json:
        print(json.dumps(result.to_json(finished.failed_hosts)), flush=True)
        return
    print(runs.text(result.result, result.units))
    where = f"{len(result.workers)} worker" + ("s" if len(result.workers) > 1 else "")
    print(f"{result.preset} on {where} ({result.backend}): {result.elapsed_s:.2f} s", flush=True)


class Reporter:
    """Tells this terminal and the head how far a run is; called from the computing thread."""

    def __init__(self, link: HeadLink, work: Work, record: runs.RunRecord, bars: Progress) -> None:
        self.cancel = Event()
        self._link = link
        self._work = work
        self._record = record
        self._bars = bars
        self._loop = asyncio.get_running_loop()
        self._last: RunProgress | None = None
        self._told_at = 0.0

    def progressed(self, step: "RunProgress") -> None:
        """Take note of progress, in the computing thread."""
        self._bars.show(step.stage, step.done, step.total)
        now = time.monotonic()
        self._last = step
        if now - self._told_at >= REPORT_EVERY_S:
            self._told_at = now
            asyncio.run_coroutine_threadsafe(self.tell(RunState.RUNNING), self._loop)

    async def tell(
        self,
        state: RunState,
        *,
        result: "RunResult | None" = None,
        error: Exception | None = None,
    ) -> None:
        """Tell the head."""
        last = self._last
        summary = str(error) if error else _summary(result) if result else ""
        await self._link.send(
            ReportRun(
                id=self._record.id,
                preset=self._work.preset_name,
                parameters=tuple(self._work.given.items()),
                state=state.value,
                started_at=self._record.started_at,
                stage=last.stage if last else "",
                done=last.done if last else 0,
                total=last.total if last else 0,
                summary=summary,
                result_json=json.dumps(result.to_record()) if result else "",
                error_type=type(error).__name__ if error else "",
            )
        )


def _summary(result: "RunResult") -> str:
    """Return the first number of a result, in a line."""
    for key, value in result.result.items():
        if isinstance(value, bool):
            return f"{key.replace('_', ' ')}: {'yes' if value else 'no'}, {result.elapsed_s:.2f} s"
        if isinstance(value, int | float):
            return f"{key.replace('_', ' ')} {value:,.6g}, {result.elapsed_s:.2f} s"
    return f"{result.elapsed_s:.2f} s"


def _failed_host(host: HostStatus) -> dict[str, str]:
    return {"host": host.name, "stage": host.failed_stage, "reason": host.reason}


def _failure(work: Work, error: GputuiError) -> dict[str, Any]:
    """Return the object that `--json` prints of a failure."""
    return {
        "preset": work.preset_name,
        "parameters": dict(work.parameters),
        "backend": work.backend,
        "error": {"type": type(error).__name__, "message": str(error)},
        "version": __version__,
    }


@asynccontextmanager
async def attached_to(name: str) -> AsyncIterator[HeadLink]:
    """Hold a cluster that runs, and leave it running."""
    link = await HeadLink.open(chosen_cluster(name).socket, face="run")
    try:
        yield link
    finally:
        await link.close()
