"""A run from its request to its end: on a cluster, recorded, reported to the head, printed.

`run_recorded` runs every preset and script: whatever happens to it becomes a
state in its record and, with `--json`, an object on stdout.
"""

import asyncio
import contextlib
import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gputui import runs
from gputui.client.head_connection import HeadConnection
from gputui.client.start import check_enough, failures, workers_up
from gputui.errors import ExitCode, GputuiError, RunError
from gputui.model.snapshot import HostStatus, RunState
from gputui.presets.job import RunCancelledError
from gputui.presets.outcome import json_text
from gputui.protocol.frontend import Settled, SubscribeLogs
from gputui.runs.ongoing import OngoingRun
from gputui.runs.progress import progress
from gputui.runs.request import RunRequest
from gputui.version import __version__

OpenCluster = Callable[[], contextlib.AbstractAsyncContextManager[HeadConnection]]
"""Attaches to a cluster, started or found, and detaches from it."""

MOST_CRASHES = 5
"""Ends of workers that an error names."""


@dataclass(frozen=True, slots=True)
class RunEnd:
    """A run's end."""

    kept: Mapping[str, Any]
    """The object that `--json` prints, and the record's additions."""
    summary: str = ""
    saved: tuple[str, ...] = ()
    exit_code: int = ExitCode.DONE
    state: RunState = RunState.DONE
    error: GputuiError | None = None
    """Of a run that failed and has said so itself."""


Compute = Callable[[OngoingRun], Awaitable[RunEnd]]


async def run_recorded(request: RunRequest, open_cluster: OpenCluster, compute: Compute) -> int:
    """Attach to a cluster, run `compute` on it, and detach; returns the exit code.

    Raises GputuiError as it comes, after it was recorded and, where asked, printed as JSON.
    """
    recording = runs.Recording(_begun(request), _warn)
    try:
        with progress(request.quiet) as bars:
            bars.show("starting", 0, 0)
            recording.stage("starting")
            async with open_cluster() as connection:
                await connection.send(SubscribeLogs(True))
                settled = await _settled(request, connection, recording)
                return await _done(
                    OngoingRun(request, connection, settled, recording, bars), compute
                )
    except asyncio.CancelledError:
        recording.end(RunState.CANCELLED)
        raise
    except Exception as error:
        known = error if isinstance(error, GputuiError) else _unexpected(request, error)
        recording.end(_state(known), failure=known.failure())
        if request.as_json:
            print_failure(request, known)
        raise known from known.__cause__


def print_out(text: str) -> None:
    """Print on stdout; raises RunError where that is full, and not where nobody reads on."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        return
    except OSError as error:
        raise RunError(f"standard output: {error.strerror}") from error


def print_failure(request: RunRequest, error: GputuiError) -> None:
    """Print what `--json` prints of a failure, where that can be written: it says itself, too."""
    with contextlib.suppress(RunError):
        print_out(json_text(failure(request, error)))


def failure(request: RunRequest, error: GputuiError) -> dict[str, Any]:
    """Return the object that `--json` prints of a failure."""
    message = "\n".join((str(error), *getattr(error, "__notes__", ())))
    return {
        "preset": request.name,
        "parameters": dict(request.parameters),
        "backend": request.backend,
        "error": {"type": type(error).__name__, "message": message},
        "version": __version__,
    }


def failed_hosts(settled: Settled) -> tuple[dict[str, str], ...]:
    """Describe the failed hosts for `--json`."""
    return tuple(_failed_host(host) for host in settled.failed_hosts)


def _begun(request: RunRequest) -> runs.RunRecord:
    id, _, started_at = os.environ.pop(runs.RUN_VARIABLE, "").partition(" ")
    return runs.new_record(
        request.name,
        request.parameters,
        backend=request.backend,
        hosts=request.hosts,
        version=__version__,
        id=id,
        started_at=float(started_at) if started_at else None,
    )


async def _settled(
    request: RunRequest, connection: HeadConnection, recording: runs.Recording
) -> Settled:
    """Wait for the workers and report missing ones; raises ClusterError if too few came up."""
    settled = await workers_up(connection, request.workers, _warn)
    recording.note(f"{len(settled.workers)} workers up", *failures(settled))
    check_enough(settled, request.min_workers, reported=True)
    if connection.dashboard and not request.quiet:
        _warn(f"dashboard at {connection.dashboard}")
    return settled


async def _done(ongoing: OngoingRun, compute: Compute) -> int:
    """Compute, and have record and head know how it ended."""
    await ongoing.report()
    try:
        end = await compute(ongoing)
    except asyncio.CancelledError:
        await ongoing.end(RunState.CANCELLED)
        raise
    except GputuiError as error:
        known = _with_crashes(error, ongoing)
        await ongoing.end(_state(error), error)
        raise known from error
    await ongoing.end(end.state, end.error, result=end.kept, saved=end.saved, summary=end.summary)
    return int(end.exit_code)


def _with_crashes(error: GputuiError, ongoing: OngoingRun) -> GputuiError:
    """Return the error of a run, with how its workers ended behind it."""
    ends = [f"{w} {line}" for w, lines in ongoing.events.crashes.items() for line in lines]
    crashes = [end for end in ends if end.partition(": ")[2] not in str(error)][-MOST_CRASHES:]
    if not crashes or type(error) is not RunError:
        return error
    known = RunError("\n  ".join([str(error), *crashes]))
    known.__cause__ = error.__cause__
    return known


def _unexpected(request: RunRequest, error: Exception) -> RunError:
    """Return the error of a run that a mistake of ours has ended; its log has the traceback."""
    known = RunError(f"{request.name} failed unexpectedly: {type(error).__name__}: {error}")
    known.__cause__ = error
    return known


def _state(error: GputuiError) -> RunState:
    """Return how a run ended that raised this."""
    return RunState.CANCELLED if isinstance(error, RunCancelledError) else RunState.FAILED


def _failed_host(host: HostStatus) -> dict[str, str]:
    return {"host": host.name, "stage": host.failed_stage, "reason": host.reason}


def _warn(problem: str) -> None:
    print(f"gputui: {problem}", file=sys.stderr)
