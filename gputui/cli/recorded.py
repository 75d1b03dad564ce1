"""Any work on a cluster, from the hold on one to its end: recorded, told to the head, printed.

`recorded` is the one way in which a preset or a script runs: whatever happens to it becomes a
state in its record and, with `--json`, an object on stdout.
"""

import asyncio
import contextlib
import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gputui import __version__, run
from gputui.cli.course import Course, Work
from gputui.cli.progress import progress
from gputui.cluster import HeadLink, check_enough, failures
from gputui.errors import ExitCode, GputuiError, RunError
from gputui.presets.job import RunCancelledError
from gputui.presets.plain import json_text
from gputui.protocol.frontend import AwaitWorkers, Settled, SubscribeLogs
from gputui.settings import load_settings
from gputui.snapshot import HostStatus, RunState

Hold = Callable[[], contextlib.AbstractAsyncContextManager[HeadLink]]
"""Takes hold of a cluster, started or found, and lets go of it."""

MOST_CRASHES = 5
"""Ends of workers that an error names."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What work came to."""

    kept: Mapping[str, Any]
    """The object that `--json` prints, and what the record has beside it."""
    summary: str = ""
    saved: tuple[str, ...] = ()
    exit_code: int = ExitCode.DONE
    state: RunState = RunState.DONE
    error: GputuiError | None = None
    """Of work that failed and has said so itself."""


Doing = Callable[[Course], Awaitable[Outcome]]


async def recorded(work: Work, hold: Hold, do: Doing) -> int:
    """Take hold of a cluster, do the work on it, and let go; returns the exit code.

    Raises GputuiError as it comes, after it was recorded and, where asked, printed as JSON.
    """
    recording = run.Recording(_begun(work), _warn)
    try:
        with progress(work.quiet) as bars:
            bars.show("starting", 0, 0)
            recording.stage("starting")
            async with hold() as link:
                await link.send(SubscribeLogs(True))
                settled = await _settled(work, link, recording)
                return await _done(Course(work, link, settled, recording, bars), do)
    except asyncio.CancelledError:
        recording.end(RunState.CANCELLED)
        raise
    except GputuiError as error:
        recording.end(_state(error), error=error)
        if work.as_json:
            print(json_text(failure(work, error)), flush=True)
        raise


def failure(work: Work, error: GputuiError) -> dict[str, Any]:
    """Return the object that `--json` prints of a failure."""
    return {
        "preset": work.name,
        "parameters": dict(work.parameters),
        "backend": work.backend,
        "error": {"type": type(error).__name__, "message": str(error)},
        "version": __version__,
    }


def failed_hosts(settled: Settled) -> tuple[dict[str, str], ...]:
    """Return what `--json` prints of the hosts that were not there."""
    return tuple(_failed_host(host) for host in settled.failed_hosts)


def _begun(work: Work) -> run.RunRecord:
    run.prune(load_settings().runs_kept)
    return run.new_record(
        work.name,
        work.parameters,
        backend=work.backend,
        hosts=work.hosts,
        version=__version__,
        id=os.environ.pop(run.RUN_VARIABLE, ""),
    )


async def _settled(work: Work, link: HeadLink, recording: run.Recording) -> Settled:
    """Wait for the workers, and say what is missing; raises ClusterError where too few came up."""
    settled = await link.request(AwaitWorkers(0, work.workers))
    assert isinstance(settled, Settled)
    check_enough(settled, work.min_workers)
    problems = failures(settled)
    recording.note(f"{len(settled.workers)} workers up", *problems)
    for problem in problems:
        _warn(problem)
    if link.dashboard and not work.quiet:
        _warn(f"dashboard at {link.dashboard}")
    return settled


async def _done(course: Course, do: Doing) -> int:
    """Do the work, and tell record and head how it ended."""
    await course.tell(RunState.RUNNING)
    try:
        outcome = await do(course)
    except asyncio.CancelledError:
        await course.end(RunState.CANCELLED)
        raise
    except GputuiError as error:
        told = _with_crashes(error, course)
        await course.end(_state(told), error=told)
        raise told from error
    await course.end(
        outcome.state,
        outcome.summary,
        result=outcome.kept,
        error=outcome.error,
        saved=outcome.saved,
    )
    return int(outcome.exit_code)


def _with_crashes(error: GputuiError, course: Course) -> GputuiError:
    """Return the error of a run, with how its workers ended behind it."""
    news = (c for c in course.heard.crashes if c.partition(": ")[2] not in str(error))
    crashes = list(dict.fromkeys(news))[-MOST_CRASHES:]
    if not crashes or type(error) is not RunError:
        return error
    told = RunError("\n  ".join([str(error), *crashes]))
    told.__cause__ = error.__cause__
    return told


def _state(error: GputuiError) -> RunState:
    """Return how a run ended that raised this."""
    return RunState.CANCELLED if isinstance(error, RunCancelledError) else RunState.FAILED


def _failed_host(host: HostStatus) -> dict[str, str]:
    return {"host": host.name, "stage": host.failed_stage, "reason": host.reason}


def _warn(problem: str) -> None:
    print(f"gputui: {problem}", file=sys.stderr)
