"""What the screen costs in a terminal: `python -m tests.benchmarks.screen [WINDOW_S] [--watch]`.

A stand-in for a head (`steady`) serves clusters at work over a socket, once a second, 15 % of
what a row shows changing each time, after an hour of history. The screen runs in a pty of 120×40,
then of 80×24, whose other end counts bytes and shows them. Printed is each bar of the screen with
what was measured: medians of several starts or windows, keys as the 95th percentile. CPU is what
the kernel counted for the process; on a busy machine it takes half as much again, and spans say
nothing there. With --watch only the sizes are measured, on hosts without workers.
"""

import contextlib
import os
import random
import select
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tests.benchmarks.ptys import CELLS, cpu_s, resident_mb
from tests.benchmarks.sides import own_folders
from tests.benchmarks.steady import HOUR_S, SHARE
from tests.benchmarks.watched import Watched

STARTS = 7
WINDOWS = 3
KEYS = 40
DIALOGS = 40
SETTLING_S = 8.0
PAUSED_S = 5.0
FACE = """
import sys
from gputui.cli.screen import show
async def opened():
    from gputui.client.head_connection import HeadConnection
    return await HeadConnection.open(sys.argv[1], frontend="screen", snapshots=True)
sys.exit(show(opened, dict(theme=None, only_ascii=False, readonly=False)))
"""


@dataclass(frozen=True, slots=True)
class Zoom:
    """A zoom of the fleet, how it is come to, and keys that move its cursor there and back."""

    name: str
    keys: bytes
    there: bytes
    back: bytes


ZOOMS = (Zoom("gpu", b"1zz", b"j", b"k"), Zoom("heat", b"1ZZ", b"l", b"h"))


@dataclass(frozen=True, slots=True)
class Size:
    """A size of cluster and the bars for it."""

    shape: str
    gpus: int
    cpu_percent: float
    key_ms: float | None
    rows_ms: float | None


SIZES = (
    Size("8x8", 64, 2.0, None, 200.0),
    Size("125x8", 1000, 5.0, 40.0, 200.0),
    Size("512x8", 4096, 12.0, 60.0, None),
)
DIALOG_MS = 100.0
KB_PER_S = {CELLS: 5.0, (80, 24): 5.0}
"""Sizes of the terminal, and the bar for what is sent to it."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What a screen costs at one zoom; medians."""

    cpu_percent: float
    kb_per_s: float
    cells_percent: float
    """Of the terminal's cells, how many are others than a second before."""
    key_ms: float
    """95th percentile."""


def row(what: str, unit: str, bar: float | None, *measured: float) -> None:
    """Print a row of the table: a bar and what was measured, at each zoom where it differs."""
    verdict = "" if bar is None else "met" if max(measured) <= bar else "NOT MET"
    figures = " ".join(f"{value:9.1f}" for value in measured)
    limit = "–" if bar is None else f"≤ {bar:g}"
    print(f"{what:45} {unit:6} {limit:>7} {figures:19} {verdict}", flush=True)


@contextlib.contextmanager
def served(load: str, shape: str) -> Iterator[tuple[Path, IO[str]]]:
    """Serve a load; give its socket and what it prints."""
    with tempfile.TemporaryDirectory() as folder:
        socket = Path(folder) / "head.sock"
        command = [sys.executable, "-m", "tests.benchmarks.steady", load, shape, str(socket)]
        head = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        assert head.stdout is not None
        try:
            while not socket.exists():
                time.sleep(0.05)
            yield socket, head.stdout
        finally:
            head.communicate("")


@contextlib.contextmanager
def watched(socket: Path, cells: tuple[int, int] = CELLS) -> Iterator[Watched]:
    """Watch what a socket serves."""
    screen = Watched.start(sys.executable, "-c", FACE, str(socket), cells=cells)
    try:
        yield screen
    finally:
        screen.end()


def first_frame_ms() -> float:
    """Return how long the command takes to draw."""
    screen = Watched.start(sys.executable, "-m", "gputui", "--demo", "8x8")
    try:
        return 1000 * (screen.until(lambda: screen.shows("gputui", "quit")) - screen.begun_at)
    finally:
        screen.end()


def rows_ms(socket: Path, printed: IO[str]) -> float:
    """Return how long after the first snapshot was sent the fleet is seen."""
    with watched(socket) as screen:
        seen_at = screen.until(lambda: screen.shows(" GPUs on ", "node-"))
        return 1000 * (seen_at - float(printed.readline()))


def costs(
    socket: Path, window_s: float, cells: tuple[int, int] = CELLS
) -> tuple[list[Cost], float]:
    """Return what a screen costs at each zoom, and what it sends a second while it is paused."""
    with watched(socket, cells) as screen:
        screen.rest(SETTLING_S)
        found = []
        for zoom in ZOOMS:
            screen.type(zoom.keys)
            screen.rest(2.0)
            found.append(cost(screen, zoom, window_s))
        screen.type(b"p")
        screen.rest(2.0)
        return found, screen.rest(PAUSED_S) / PAUSED_S


def cost(screen: Watched, zoom: Zoom, window_s: float) -> Cost:
    """Return what a screen costs as it is."""
    windows = [window(screen, window_s) for _ in range(WINDOWS)]
    cpu, sent = (statistics.median(each) for each in zip(*windows, strict=True))
    before = screen.screen.display
    screen.rest(1.0)
    pairs = zip("".join(before), "".join(screen.screen.display), strict=True)
    changed = sum(old != new for old, new in pairs) / (screen.cells[0] * screen.cells[1])
    return Cost(100 * cpu, sent / 1000, 100 * changed, keys_ms(screen, zoom))


def window(screen: Watched, seconds: float) -> tuple[float, float]:
    """Return the CPU and the bytes of a second, on average over some."""
    before, began = cpu_s([screen.pty.pid]), time.monotonic()
    sent = screen.rest(seconds)
    spent = time.monotonic() - began
    return (cpu_s([screen.pty.pid]) - before) / spent, sent / spent


def keys_ms(screen: Watched, zoom: Zoom) -> float:
    """Return within how long 95 of 100 keys moved the cursor."""
    rng = random.Random(0)
    here = screen.cursor()
    spans = []
    for _ in range(KEYS // 2):
        for key, away in ((zoom.there, True), (zoom.back, False)):
            screen.rest(rng.uniform(0.05, 0.25))
            begin = time.monotonic()
            screen.type(key)
            spans.append(screen.until(lambda: (screen.cursor() != here) is away) - begin)  # noqa: B023
    return 1000 * statistics.quantiles(spans, n=20)[-1]


def dialogs_ms(screen: Watched) -> float:
    """Return within how long 95 of 100 dialogs stood."""
    spans = []
    for _ in range(DIALOGS):
        screen.rest(0.2)
        begin = time.monotonic()
        screen.type(b"c")
        spans.append(screen.until(lambda: screen.shows("copy command")) - begin)
        screen.type(b"\x1b")
        screen.until(lambda: not screen.shows("copy command"))
    return 1000 * statistics.quantiles(spans, n=20)[-1]


def memory_mb(shape: str) -> float:
    """Return what a screen that has seen an hour holds, logs and all."""
    with served("hour", shape) as (socket, printed), watched(socket) as screen:
        screen.rest(2.0)
        screen.type(b"4")
        while not (select.select([printed], [], [], 0)[0] and "over" in printed.readline()):
            screen.rest(0.5)
        screen.type(b"1")
        screen.rest(2.0)
        return resident_mb([screen.pty.pid])


def main() -> None:
    """Print the table."""
    watch = "--watch" in sys.argv
    window_s = next((float(each) for each in sys.argv[1:] if not each.startswith("-")), 3.0)
    print(f"one refresh a second, {SHARE:.0%} of what a row shows changing, histories moving")
    print(f"{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f} as it began")
    print(f"{'':45} {'':6} {'bar':>7} " + " ".join(f"{zoom.name:>9}" for zoom in ZOOMS))
    with own_folders():
        if watch:
            for size in SIZES[:2]:
                of_size(size, window_s, "watching")
        else:
            measure(window_s)
    print(f"load {os.getloadavg()[0]:.1f} as it ended")


def measure(window_s: float) -> None:
    """Measure and print row by row."""
    starts = [first_frame_ms() for _ in range(STARTS)]
    row("command typed → first frame", "ms", 350.0, statistics.median(starts))
    paused = max(of_size(size, window_s) for size in SIZES)
    row("paused: to the terminal", "B/s", 0.0, paused)
    with served("restless", "8x8") as (socket, _):
        found, _ = costs(socket, window_s)
    name = "64 GPUs, every reading changing"
    row(f"{name}: CPU", "%", None, *(c.cpu_percent for c in found))
    row(f"{name}: sent", "kB/s", None, *(c.kb_per_s for c in found))
    row(f"{name}: cells", "%", None, *(c.cells_percent for c in found))
    row(f"1,000 GPUs and {HOUR_S} s of history: resident", "MB", 120.0, memory_mb("125x8"))


def of_size(size: Size, window_s: float, load: str = "steady") -> float:
    """Print what a size of cluster costs in each terminal; return what is sent while paused."""
    with served(load, size.shape) as (socket, printed):
        shown = statistics.median(rows_ms(socket, printed) for _ in range(STARTS))
        row(f"first snapshot → {size.gpus:,} GPUs", "ms", size.rows_ms, shown)
        if size.key_ms is not None:
            with watched(socket) as screen:
                screen.until(lambda: screen.shows(" GPUs on ", "node-"))
                row(f"{size.gpus:,} GPUs: key → dialog, p95", "ms", DIALOG_MS, dialogs_ms(screen))
        return max(in_terminal(socket, size, cells, window_s) for cells in KB_PER_S)


def in_terminal(socket: Path, size: Size, cells: tuple[int, int], window_s: float) -> float:
    """Print what a size of cluster costs in a terminal; return what is sent while paused."""
    found, paused = costs(socket, window_s, cells)
    name = f"{size.gpus:,} GPUs at {cells[0]}×{cells[1]}"
    row(f"{name}: CPU of one core", "%", size.cpu_percent, *(c.cpu_percent for c in found))
    row(f"{name}: to the terminal", "kB/s", KB_PER_S[cells], *(c.kb_per_s for c in found))
    row(f"{name}: cells that change a second", "%", None, *(c.cells_percent for c in found))
    row(f"{name}: key → frame, p95", "ms", size.key_ms, *(c.key_ms for c in found))
    return paused


if __name__ == "__main__":
    main()
