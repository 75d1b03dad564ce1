"""How a worker's process ended, in words that say what to do: pure."""

import os
import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass

NO_SCHEDULER = 75
"""The worker's own exit status where it could not join."""


@dataclass(frozen=True, slots=True)
class Exit:
    """The end of a process, and whether it counts as a failure."""

    kind: str
    reason: str
    exit_code: int | None
    signal: int | None
    failed: bool


def explain(
    status: int, tail: Sequence[str], *, stopped: bool = False, over_limit: bool = False
) -> Exit:
    """Return what a `waitpid` status and the last lines of output mean.

    >>> explain(0, [], stopped=True).kind, explain(0, []).kind
    ('stopped', 'closed')
    >>> explain(9, [], over_limit=True).reason
    'it reached its memory limit; give it more with memory=, or use smaller chunks'
    >>> explain(11, []).reason
    'SIGSEGV: a library crashed'
    """
    number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
    code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else None
    if stopped:
        return Exit("stopped", "stopped", code, number, failed=False)
    if over_limit:
        words = "it reached its memory limit; give it more with memory=, or use smaller chunks"
        return Exit("memory-limit", words, code, number, failed=True)
    if number is not None:
        return Exit(*_by_signal(number), code, number, failed=True)
    if code == 0:
        return Exit("closed", "it was closed by the scheduler or its client", code, None, False)
    if code == NO_SCHEDULER:
        return Exit("no-scheduler", "it found no scheduler", code, None, failed=False)
    return Exit(*_by_output(code, tail), code, None, failed=True)


def _by_signal(number: int) -> tuple[str, str]:
    """Return kind and reason of a death by signal."""
    name = signal.Signals(number).name
    if number == signal.SIGKILL:
        words = "SIGKILL: ended from outside, or by the kernel when memory ran out (see dmesg)"
        return "signal", words
    crash = number in (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGILL)
    return "signal", f"{name}: a library crashed" if crash else name


def _by_output(code: int | None, tail: Sequence[str]) -> tuple[str, str]:
    """Return kind and reason of an exit code, by what was printed last."""
    last = next((line.strip() for line in reversed(tail) if line.strip()), "")
    if re.search(r"(Import|ModuleNotFound)Error", last):
        return "import-error", last
    if re.search(r"\bCUDA|cuda[A-Z]|cupy", last):
        return "cuda-error", last
    return "crashed", f"exit code {code}" + (f": {last}" if last else "")
