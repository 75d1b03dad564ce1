"""Sides of a comparison: commands run in turn (A B A B …), and the table of what each took.

A side is a child process. Noted are when it printed each line, when it ended, and when nothing of
it was left on any host: no process that carries one of its marks in its environment.
"""

import contextlib
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.processes import cpu_of_children_s

BOUND_S = 120.0


@dataclass(frozen=True, slots=True)
class Side:
    """A command, and what its processes carry in their environment."""

    name: str
    command: tuple[str, ...]
    environ: Mapping[str, str] = field(default_factory=dict)
    stdin: str = ""
    marks: tuple[str, ...] = ()
    """`NAME=value` or the beginning of it, that processes on its hosts carry besides its own."""
    status: int = 0
    """How it is to end."""


@dataclass(frozen=True, slots=True)
class Times:
    """What one run of a side took, in seconds since its start."""

    lines: tuple[tuple[float, str], ...]
    """When each line came on stdout."""
    ended_s: float
    gone_s: float
    cpu_s: float
    """Of the command and the children it waited for: what other work here does not touch."""

    def line_s(self, beginning: str = "") -> float:
        """Return when the first line that begins so came."""
        return next(at for at, line in self.lines if line.startswith(beginning))


@contextlib.contextmanager
def own_folders() -> Iterator[Path]:
    """Give what is started here a runtime and a state folder apart from this user's own.

    A benchmark that is sent SIGTERM ends what it started, sshds and stopped processes, too.
    Bytecode is kept as it is for anybody: whoever sets PYTHONDONTWRITEBYTECODE compiles each time.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryDirectory(prefix="gputui-bench-") as folder:
        for name in ("XDG_RUNTIME_DIR", "XDG_STATE_HOME"):
            os.environ[name] = folder
        yield Path(folder)


def interleaved(sides: Sequence[Side], repeats: int) -> list[list[Times]]:
    """Return the times of each side: all of them once to warm up, then in turn."""
    for side in sides:
        timed(side)
    rounds = [[timed(side) for side in sides] for _ in range(repeats)]
    return [list(column) for column in zip(*rounds, strict=True)]


def timed(side: Side) -> Times:
    """Run a side until nothing is left of it; raises RuntimeError where it does not end well."""
    own = f"GPUTUI_BENCHMARK={os.getpid()}.{time.monotonic_ns()}"
    name, _, value = own.partition("=")
    started, cpu_s = time.perf_counter(), cpu_of_children_s()
    process = subprocess.Popen(
        side.command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **side.environ, name: value},
    )
    assert process.stdin and process.stdout and process.stderr
    process.stdin.write(side.stdin)
    process.stdin.close()
    lines = tuple((time.perf_counter() - started, line.strip()) for line in process.stdout)
    said = process.stderr.read()
    status = process.wait()
    ended_s, cpu_s = time.perf_counter() - started, cpu_of_children_s() - cpu_s
    if status != side.status:
        raise RuntimeError(f"{side.name} ended with {status}: {said}")
    _wait_until_gone([own, *side.marks])
    return Times(lines, ended_s, time.perf_counter() - started, cpu_s)


def _wait_until_gone(marks: Sequence[str]) -> None:
    ends_at = time.monotonic() + BOUND_S
    while left := marked(marks):
        if time.monotonic() > ends_at:
            raise RuntimeError(f"left after {BOUND_S:.0f} s: {left}")
        time.sleep(0.005)


def marked(marks: Sequence[str]) -> list[int]:
    """Return the processes with one of these in their environment."""
    wanted = tuple(mark.encode() for mark in marks)
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            entries = (process / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if int(process.name) != os.getpid() and any(entry.startswith(wanted) for entry in entries):
            found.append(int(process.name))
    return found


def compare(
    what: str,
    ours: Sequence[Times],
    peer: Sequence[Times],
    measure: Callable[[Times], float],
    bar: float | None = None,
) -> None:
    """Print a line: the medians of ours and the peer's, their ratio, and any bar for it."""
    ours_s = statistics.median(map(measure, ours))
    peer_s = statistics.median(map(measure, peer))
    limit = "" if bar is None else f"≤ {bar:.2f} ×"
    row(what, f"{ours_s:.2f} s", f"{peer_s:.2f} s", f"{ours_s / peer_s:.2f} ×", limit)


def row(what: str, *cells: str) -> None:
    """Print a line of a table."""
    print(f"{what:<46}" + "".join(f"{cell:>14}" for cell in cells), flush=True)
