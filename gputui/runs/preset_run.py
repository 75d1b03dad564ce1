"""`--run PRESET`: a cluster, a computation on it, its result on stdout, and nothing left behind.

One event loop holds the head; the computation blocks in a thread of its own, since presets are
written against Dask's synchronous client.
"""

import asyncio
import contextlib
import logging
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, TextIO, cast

from gputui.client.head_connection import security
from gputui.errors import ExitCode, GputuiError, RunError
from gputui.presets import ParsedParameters, RunCancelledError, RunProgress
from gputui.presets.definition import plain
from gputui.presets.job import explained
from gputui.runs.execution import RunResult, execute
from gputui.runs.output import Output, draw_file, save_arrays, write_over
from gputui.runs.run import (
    OngoingRun,
    OpenCluster,
    RunRequest,
    print_object,
    print_out,
    recorded_run,
    warn,
)
from gputui.runs.text import brief, text

CANCEL_S = 5.0
"""How long a computation may take to see that it was cancelled."""
LONGEST = 2**16
"""Characters of a line in the log: a bar of dots may never end."""

DRAFT = "memory://report.html"
"""Dask's performance report, until it is written as a whole; a file system of fsspec's."""

Ended = tuple[GputuiError | None, dict[str, Any]]
"""Why a result could not be put out, and fields of the record."""


async def run_preset(
    parameters: ParsedParameters, output: Output, request: RunRequest, open_cluster: OpenCluster
) -> int:
    """Compute and print; returns the exit code, raises GputuiError."""
    loading = asyncio.create_task(asyncio.to_thread(_load_distributed))
    try:
        async with recorded_run(request, open_cluster) as ongoing:
            _, (error, kept) = await _compute(parameters, output, ongoing)
            ongoing.end(error, **kept)
            return ExitCode.COMPUTATION_FAILED if error else ExitCode.DONE
    finally:
        await asyncio.wait({loading})


async def result_of(
    parameters: ParsedParameters, request: RunRequest, open_cluster: OpenCluster
) -> RunResult:
    """Compute, and return the result with its record; raises GputuiError."""
    async with recorded_run(request, open_cluster) as ongoing:
        result, (_, kept) = await _compute(parameters, None, ongoing)
        ongoing.end(None, **kept)
    return replace(result, record=ongoing.recording.record)


def _load_distributed() -> None:
    """Import the computation's libraries while the cluster starts."""
    import distributed  # noqa: F401

    # The head reports a lost connection more clearly than the client's traceback.
    for part in ("client", "batched"):
        logging.getLogger(f"distributed.{part}").setLevel(logging.CRITICAL)


async def _compute(
    parameters: ParsedParameters, output: Output | None, ongoing: OngoingRun
) -> tuple[RunResult, Ended]:
    """Compute in a thread, until it is done, cancelled from anywhere, or the cluster is gone.

    The process ends without joining the thread, in case it does not notice a cancellation.
    """
    cancel = threading.Event()
    loop = asyncio.get_running_loop()

    def report(step: RunProgress) -> None:
        loop.call_soon_threadsafe(ongoing.progressed, step)

    work = partial(_compute_here, parameters, output, ongoing, report, cancel)
    computing = loop.run_in_executor(ThreadPoolExecutor(1, "computing"), work)
    try:
        return await ongoing.attend(computing)
    except (asyncio.CancelledError, GputuiError):
        cancel.set()
        done, _ = await asyncio.wait({computing}, timeout=CANCEL_S)
        for each in done:
            each.exception()  # what is raised here says more
        computing.cancel()
        raise


def _compute_here(
    parameters: ParsedParameters,
    output: Output | None,
    ongoing: OngoingRun,
    report: Callable[[RunProgress], None],
    cancel: threading.Event,
) -> tuple[RunResult, Ended]:
    """Compute on the cluster with a client of its own, which its arrays live with; blocks.

    Without an `output` nothing is put out, and stdout, which is one for all threads, stays as it
    is.
    """
    from distributed import Client, performance_report

    connection = ongoing.connection
    with (
        explained(parameters.preset.name),
        Client(connection.address, security=security(connection), set_as_default=False) as client,
    ):
        nothing = contextlib.nullcontext()
        noting = _words_noted(ongoing) if output else nothing
        reporting = performance_report(filename=DRAFT) if output and output.report else nothing
        with noting, client.as_current(), reporting:
            result = execute(
                client,
                parameters.preset,
                parameters,
                backend=ongoing.request.backend,
                report=report,
                cancel=cancel,
                keep_arrays=bool(output and output.save),
            )

        def fetch(block: Any) -> Any:
            if cancel.is_set():
                raise RunCancelledError("cancelled while saving")
            return client.compute(block, **result.placement).result()

        if output:
            return result, _put_out(output, ongoing, result, fetch)
        return result, (None, {"result": _kept(ongoing, result), "summary": _summary(result)})


@contextlib.contextmanager
def _words_noted(ongoing: OngoingRun) -> Iterator[None]:
    """Record a preset's output; with `--json` it goes to stderr, as stdout is for one object."""
    stream = sys.stderr if ongoing.request.as_json else sys.stdout
    noted = NotedStream(stream, ongoing.recording.note)
    with contextlib.redirect_stdout(cast(TextIO, noted)):
        try:
            yield
        finally:
            noted.finish()


class NotedStream:
    r"""Writes to `stream`, and calls `note` with whole lines; in all else it is the stream.

    A line is noted as a terminal would show it: without what `\r` wrote over.

    >>> import io
    >>> stream, noted = io.StringIO(), []
    >>> both = NotedStream(stream, lambda *lines: noted.extend(lines))
    >>> print("a", "b", file=both)
    >>> print("10 %\r20 %", end="", file=both)
    >>> both.finish()
    >>> stream.getvalue(), noted
    ('a b\n10 %\r20 %', ['a b', '20 %'])
    """

    def __init__(self, stream: TextIO, note: Callable[..., None]) -> None:
        self._stream = stream
        self._note = note
        self._begun = ""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __reduce__(self) -> tuple[Any, ...]:
        """Be, in a task, the standard output there, as cloudpickle has it of `sys.stdout`."""
        return getattr, (sys, "stdout")

    def write(self, text: str) -> int:
        """Write a text."""
        *lines, self._begun = (self._begun + text).split("\n")
        if lines:
            self._note(*map(_shown, lines))
        if len(self._begun) > 2 * LONGEST:
            self._begun = _shown(self._begun)
        return self._stream.write(text)

    def finish(self) -> None:
        """Note the line that was begun; the stream stays open."""
        if self._begun:
            self._note(_shown(self._begun))


def _shown(line: str) -> str:
    return line.rstrip("\r").rpartition("\r")[2][:LONGEST]


def _put_out(
    output: Output,
    ongoing: OngoingRun,
    result: RunResult,
    fetch: Callable[[Any], Any],
) -> Ended:
    """Print, draw and save a run's result; if that fails, the record still has it."""
    request = ongoing.request
    kept = _kept(ongoing, result)
    printed = {key: value for key, value in kept.items() if key not in ONLY_KEPT}
    ongoing.recording.keep(kept)
    saved: list[Path] = []
    error = None
    ongoing.quieten()
    try:
        if not request.as_json:
            figure = output.draw and result.figure and f"\n{output.draw(result.figure)}\n"
            shown = [text(result.result, result.units), figure, result.heading]
            print_out("\n".join(each for each in shown if each))
        with explained("saving"):
            for path in write(output, result, fetch):
                saved.append(path)
                if not request.quiet:
                    warn(f"wrote {path}")
    except RunCancelledError:
        raise
    except GputuiError as failed:
        error = failed
        warn(str(failed))
    print_object(request, printed, error)
    summary = "" if error else _summary(result)
    written = tuple(str(path.absolute()) for path in saved)
    return error, {"result": kept, "summary": summary, "saved": written}


ONLY_KEPT = ("units", "figure", "versions")


def _kept(ongoing: OngoingRun, result: RunResult) -> dict[str, Any]:
    """Return a result as it is recorded: the object that `--json` prints, and `ONLY_KEPT`."""
    workers = [
        {"name": each.name, "host": each.host, "device": each.device, "uuid": each.uuid}
        for each in result.workers
    ]
    return ongoing.printed(workers, result.elapsed_s, result.result) | {
        "preset": result.preset,
        "parameters": dict(result.parameters),
        "backend": result.backend,
        "units": dict(result.units),
        "figure": plain(asdict(result.figure)) if result.figure else None,
        "versions": dict(result.versions),
    }


def _summary(result: RunResult) -> str:
    """Return the result in a line."""
    number, elapsed = brief(result.result, result.units), f"{result.elapsed_s:.2f} s"
    return ", ".join(filter(None, (number, elapsed)))


def write(output: Output, result: RunResult, fetch: Callable[[Any], Any]) -> Iterator[Path]:
    """Write the files, the arrays first, and yield each; raises GputuiError.

    `fetch` computes where the blocks are.
    """
    if output.save:
        yield from save_arrays(output.save, result.arrays, fetch)
    if output.figure and result.figure:
        draw_file(result.figure, output.figure)
        yield output.figure
    if output.report:
        import fsspec

        write_over("--report", output.report, fsspec.filesystem("memory").cat(DRAFT))
        yield output.report
    if output.wants_figure and not result.figure:
        raise RunError("this run has no figure to draw")
