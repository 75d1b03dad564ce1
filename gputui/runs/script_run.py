"""`--run SCRIPT.py`: a cluster, the user's own Python file on it, and nothing left behind.

The script is a process of its own (`gputui.runs.script`) on this terminal: what it prints, reads
and exits with is what it would be with `python`.
"""

import asyncio
import contextlib
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from gputui.errors import ExitCode, GputuiError, HeadError, RunError, StoppedError
from gputui.presets import RunCancelledError, RunProgress
from gputui.presets.workers import device_label
from gputui.process.child import Child, signal_name
from gputui.process.search_path import own_python
from gputui.runs.run import (
    OngoingRun,
    OpenCluster,
    RunRequest,
    recorded_run,
    warn,
)
from gputui.runs.script import CLUSTER, STOPPED

GRACE_S = 5.0
"""How long a script may go on after Ctrl-C."""
MOST_SAID = 2**16
"""Of the traceback of a script that fails."""
LOST_S = 2.0
"""How long a script may go on once its cluster is lost: nothing can compute for it any more."""


async def run_script(
    path: Path, arguments: tuple[str, ...], request: RunRequest, open_cluster: OpenCluster
) -> int:
    """Run a script on a cluster; returns its exit code, raises GputuiError without one."""
    async with recorded_run(request, open_cluster) as ongoing:
        ongoing.progressed(RunProgress("running", 0, 0))
        ongoing.quieten()
        started = time.monotonic()
        with tempfile.TemporaryFile() as error_file:
            script = _start(path, arguments, ongoing, error_file.fileno())
            try:
                status, stopped = await _attended(ongoing, script, error_file.fileno())
            finally:
                await script.end(0, None)
            error_file.seek(0)
            text = error_file.read(MOST_SAID)
        elapsed_s = time.monotonic() - started
        said = text.decode(errors="replace").splitlines() if text != STOPPED else []
        error: GputuiError | None = None
        if stopped and status == ExitCode.NO_CLUSTER:
            error = stopped
        elif status:
            how = f"ended with exit code {status}"
            how = how if status > 0 else f"was ended by {signal_name(-status)}"
            interrupted = status in (ExitCode.INTERRUPTED, -signal.SIGINT)
            kind = RunCancelledError if interrupted else RunError
            error = kind(": ".join([f"{path.name} {how}", *said[-1:]]), traceback=tuple(said))
        if error and status < 0:
            warn(str(error))
        if type(error) is RunError and ongoing.crashes:
            warn(f"{ongoing.crashes[-1]}; gputui runs show last")
        return ongoing.end_process(status, error, workers(ongoing), elapsed_s)


def _start(path: Path, arguments: tuple[str, ...], ongoing: OngoingRun, error_file: int) -> Child:
    """Start the script's process, which finds the cluster by its environment."""
    connection, folder = ongoing.connection, str(path.resolve().parent)
    cluster = json.dumps([connection.address, connection.socket, folder])
    command = own_python("gputui.runs.script")
    return Child(
        [*command, str(os.getpid()), str(error_file), str(path), *arguments],
        env={**os.environ, CLUSTER: cluster},
        pass_fds=(error_file,),
        stdin=None,
        stdout=sys.stderr.buffer if ongoing.request.as_json else None,
        stderr=None,
    )


async def _attended(
    ongoing: OngoingRun, script: Child, error_file: int
) -> tuple[int, StoppedError | None]:
    """Return a script's exit status; end it where its run is cancelled or its cluster is lost.

    Where somebody stopped the cluster, a warning says so, and the script goes on: it may have
    stopped it itself, and draw its pictures now. If that ends it, its traceback says no more.
    """
    wait: Callable[[Awaitable[int | None]], Awaitable[int | None]] = ongoing.attend
    stopped = None
    while True:
        try:
            status = await wait(script.wait())
            assert status is not None
            return status, stopped
        except asyncio.CancelledError as interrupted:
            knows = interrupted.args == (signal.SIGINT.name,) and _has_terminal()
            await script.end(GRACE_S, None if knows else signal.SIGINT)
            raise
        except RunCancelledError:
            await script.end(GRACE_S, signal.SIGINT)
            raise
        except RunError as error:
            warn(str(error))
        except StoppedError as error:
            os.pwrite(error_file, STOPPED, 0)
            warn(str(error))
            stopped, wait = error, asyncio.ensure_future
        except HeadError:
            os.pwrite(error_file, STOPPED, 0)
            await script.wait(LOST_S)  # its own client notices, as a rule
            await script.end(LOST_S, signal.SIGINT)
            raise


def _has_terminal() -> bool:
    """Whether a Ctrl-C of the terminal has reached the script, too."""
    for descriptor in (0, 1, 2):  # some of them may be redirected
        with contextlib.suppress(OSError):
            return os.tcgetpgrp(descriptor) == os.getpgrp()
    return False


def workers(ongoing: OngoingRun) -> list[dict[str, Any]]:
    """Return the workers that were up at the start, as `--json` prints them."""
    known = {each.name: each for each in ongoing.snapshot.workers} if ongoing.snapshot else {}
    return [
        {
            "name": name,
            "host": name.rpartition(":")[0],
            "device": device_label(name.rpartition(":")[2]),
            "uuid": known[name].device_uuid if name in known else None,
        }
        for name in ongoing.settled.workers
    ]
