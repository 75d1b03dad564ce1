"""What went wrong in a run → one error that says what to change.

Tasks fail with whatever their libraries raise, on machines that have other libraries than this
one; so CuPy's errors are told by their names and words, never imported.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from gputui.errors import GputuiError, RunError

SMALLER = "use smaller chunks (chunk_rows), a smaller size, or more workers"
GONE = "the scheduler or all its workers are gone"


@contextmanager
def explained(what: str, remedies: Mapping[str, Callable[[], str]] | None = None) -> Iterator[None]:
    """Turn any failure of a computation into RunError; gputui's own pass.

    `remedies["memory"]` returns what to change when a device or a worker ran out of memory.
    """
    try:
        yield
    except GputuiError:
        raise
    except Exception as error:
        message, remedy = _explanation(what, error)
        if remedy == SMALLER and remedies and "memory" in remedies:
            remedy = remedies["memory"]() or SMALLER
        raise RunError(message, remedy=remedy, lost=remedy == GONE) from error


def _explanation(what: str, error: Exception) -> tuple[str, str]:
    """Return the message and what to change."""
    name, said = type(error).__name__, _first_line(error)
    if isinstance(error, MemoryError) or "out of memory" in said.lower():
        return f"{what} ran out of memory on a worker: {said}", SMALLER
    if name == "KilledWorker":
        task = getattr(error, "task", "a task")
        return (
            f"{what} lost every worker that tried {task}",
            "its log says why; where memory ran out, " + SMALLER,
        )
    if name in ("CommClosedError", "FutureCancelledError", "CancelledError"):
        return f"{what} lost its tasks: {said}", GONE
    if name == "LinAlgError":
        return f"{what} does not converge: {said}", "look for NaN, inf or a singular matrix"
    return f"{what} failed: {name}: {said}", ""


def _first_line(error: Any) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
