"""A failure in a run → one error that says what to change.

Tasks fail with what their libraries raise, on machines that have other libraries than this
one; so CuPy's errors are recognized by name and text, never imported. A note on an error
says where it was raised.
"""

import asyncio
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gputui.errors import GputuiError, RunError

SMALLER = "use smaller chunks (chunk_rows), a smaller size, or more workers"
GONE = "the scheduler or all its workers are gone"
LOST = ("CommClosedError", "FutureCancelledError", "FuturesCancelledError", "CancelledError")
"""Dask's errors for tasks that its scheduler does not have any more."""


@contextmanager
def explained(
    what: str, hints: Mapping[str, Callable[[], str]] | None = None, *, folder: str = ""
) -> Iterator[None]:
    """Turn any failure of a computation into RunError; gputui's own pass, and a person's Ctrl-C.

    `hints["memory"]` returns the hint for when a device or a worker ran out of memory. Where
    the code lies in `folder`, the error says in which of its lines it was raised.
    """
    try:
        yield
    except GputuiError:
        raise
    except BaseException as error:
        signalled = threading.current_thread() is threading.main_thread()
        if isinstance(error, KeyboardInterrupt) and signalled:
            raise
        raise _explanation(what, error, hints or {}, folder) from error


def is_out_of_memory(error: BaseException) -> bool:
    """Whether a task failed for memory of its host or of its device."""
    return isinstance(error, MemoryError) or "out of memory" in _first_line(error).lower()


def sized(size_bytes: float) -> str:
    """Return a size with its unit.

    >>> sized(12_025_908_428), sized(2_000_000)
    ('11.2 GiB', '1.9 MiB')
    """
    if size_bytes >= 2**29:
        return f"{size_bytes / 2**30:,.1f} GiB"
    return f"{size_bytes / 2**20:,.1f} MiB"


def _explanation(
    what: str,
    error: BaseException,
    hints: Mapping[str, Callable[[], str]],
    folder: str,
) -> RunError:
    """Return the error with what to change."""
    name, said = type(error).__name__, _first_line(error)
    if is_out_of_memory(error):
        where = next(iter(getattr(error, "__notes__", ())), "on a worker")
        message = f"{what} ran out of memory {where}: {said}"
        return RunError(message, hint=_smaller(hints))
    if name == "KilledWorker":
        return _killed(what, error, hints)
    if name in LOST and not isinstance(error, asyncio.CancelledError):
        return RunError(f"{what} lost its tasks: {said}", hint=GONE, lost=True)
    if name == "LinAlgError":
        hint = "look for NaN, inf or a singular matrix"
        return RunError(f"{what} does not converge: {said}", hint=hint)
    return RunError(f"{what} failed: {name}: {said}{_line_in(folder, error)}")


def _line_in(folder: str, error: BaseException) -> str:
    """Return the last line in a folder, or below, that an error came through; "" without one."""
    frames = traceback.extract_tb(error.__traceback__)
    for frame in reversed(frames if folder else ()):
        if Path(frame.filename).is_relative_to(folder):
            return f" ({Path(frame.filename).name}:{frame.lineno}, in {frame.name})"
    return ""


def _killed(what: str, error: Any, hints: Mapping[str, Callable[[], str]]) -> RunError:
    """Return the error of a task that its workers did not survive; the last of them is named."""
    worker = str(getattr(error.last_worker, "name", error.last_worker))
    message = (
        f"{what} lost {error.allowed_failures + 1} workers one after another, each at the same "
        f"task, {error.task}; the last one was {worker}"
    )
    hint = f"where memory ran out, {_smaller(hints)}"
    return RunError(message, hint=hint, lost_worker=worker)


def _smaller(hints: Mapping[str, Callable[[], str]]) -> str:
    return (hints["memory"]() if "memory" in hints else "") or SMALLER


def _first_line(error: Any) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
