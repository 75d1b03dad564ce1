"""Explain how a worker's process ended, with a hint. Pure."""

import os
import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass

from gputui.process.child import signal_name
from gputui.protocol.forking import CANNOT_LISTEN

MORE = "give it more with memory=, or use smaller chunks"
LESS = "give workers less with memory=, or use fewer of them"


@dataclass(frozen=True, slots=True)
class Exit:
    """The end of a process, and whether it counts as a failure."""

    kind: str
    reason: str
    exit_code: int | None
    signal: int | None
    failed: bool


def explain(
    status: int,
    tail: Sequence[str],
    *,
    stopped: bool = False,
    over_limit_bytes: int | None = None,
    kernel_killed: bool = False,
) -> Exit:
    """Explain how a process ended, by its `waitpid` status and its last lines of output.

    `over_limit_bytes` is the memory limit that it was ended at, `kernel_killed` whether the
    kernel ended any process for memory while it lived.

    >>> explain(0, [], stopped=True).kind, explain(0, []).kind
    ('stopped', 'closed')
    >>> explain(9, [], over_limit_bytes=2**30).reason
    'it reached its memory limit of 1.0 GiB; give it more with memory=, or use smaller chunks'
    >>> explain(9, [], kernel_killed=True).kind, explain(9, []).kind
    ('oom-killer', 'signal')
    >>> explain(11, []).reason
    'SIGSEGV: a library crashed'
    >>> explain(40, []).reason
    'signal 40'
    """
    number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
    code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else None
    if stopped:
        return Exit("stopped", "stopped", code, number, failed=False)
    if over_limit_bytes is not None:
        words = f"it reached its memory limit of {_sized(over_limit_bytes)}; {MORE}"
        return Exit("memory-limit", words, code, number, failed=True)
    if number == signal.SIGKILL and kernel_killed:
        words = f"memory ran out, of the host or of its control group: the kernel ended it; {LESS}"
        return Exit("oom-killer", words, code, number, failed=True)
    if number is not None:
        return Exit(*_by_signal(number), code, number, failed=True)
    if code == 0:
        return Exit("closed", "it was closed by the scheduler or its client", code, None, False)
    return Exit(*_by_output(code, tail), code, None, failed=True)


def _sized(size_bytes: int) -> str:
    """Return a memory limit with its unit.

    >>> _sized(400 * 2**20), _sized(3 * 2**29)
    ('400 MiB', '1.5 GiB')
    """
    if size_bytes < 2**30:
        return f"{size_bytes / 2**20:,.0f} MiB"
    return f"{size_bytes / 2**30:,.1f} GiB"


def _by_signal(number: int) -> tuple[str, str]:
    """Return kind and reason of a death by signal."""
    if number == signal.SIGKILL:
        return "signal", "SIGKILL: ended from outside"
    crash = number in (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGILL)
    name = signal_name(number)
    return "signal", f"{name}: a library crashed" if crash else name


def _by_output(code: int | None, tail: Sequence[str]) -> tuple[str, str]:
    """Return kind and reason of an exit code, using the last log lines."""
    last = next((line.strip() for line in reversed(tail) if line.strip()), "")
    if re.search(r"(Import|ModuleNotFound)Error", last):
        return "import-error", last
    if last.startswith(CANNOT_LISTEN):
        return "address", last
    if re.search(r"\bCUDA|cuda[A-Z]|cupy", last):
        return "cuda-error", last
    return "crashed", f"exit code {code}" + (f": {last}" if last else "")
