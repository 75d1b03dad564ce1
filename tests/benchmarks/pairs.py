"""This checkout against an older one, in pairs that take turns: what README says of both sides.

    git clone . /tmp/old && git -C /tmp/old checkout 414c2e8^
    python -m tests.benchmarks.pairs /tmp/old               # 20 pairs of each row
    python -m tests.benchmarks.pairs /tmp/old --pairs 3 --only starting

Each side runs its own gputui in this Python; what watches a screen or reads a cost is the side's
own benchmark. Printed are the medians and the median of the pairs' ratios, new by old: what else
the machine does reaches both halves of a pair. 20 pairs of the costs take an hour and a half.
"""

import argparse
import statistics
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.peers import SIZE
from tests.benchmarks.sides import Side, Times, own_folders, row, timed

OWN = Path(__file__).resolve().parents[2]
BAR = 1.05
LOCAL = "localhost gpus=none workers=4 nthreads=1"
RUN = ("--run", "random-sum", "-p", f"size={SIZE}", "--quiet")
PROBE = """
import os, sys
from pathlib import Path
os.chdir(sys.argv[1])
os.environ["GPUTUI_BENCHMARK_REST_S"] = "1"  # as long as the old stand-in for a head computed
from tests.benchmarks import screen
def rows():
    with screen.served("steady", "125x8") as (socket, printed), screen.watched(socket) as seen:
        shown_at = seen.until(lambda: seen.shows(" GPUs on ", "node-"))
        return 1000 * (shown_at - float(printed.readline()))
def cpu_s(pid):  # in nanoseconds: a hundredth of a core for ten seconds is but ten ticks
    files = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(file.read_text().split()[0]) for file in files) / 1e9
def steady(shape, zoom):
    with screen.served("steady", shape) as (socket, _), screen.watched(socket) as seen:
        seen.rest(screen.SETTLING_S)
        seen.type(next(each.keys for each in screen.ZOOMS if each.name == zoom))
        seen.rest(2.0)
        before = cpu_s(seen.pty.pid)
        seen.rest(10.0)
        return 10 * (cpu_s(seen.pty.pid) - before)
print({"first": screen.first_frame_ms, "rows": rows, "steady": steady}[sys.argv[2]](*sys.argv[3:]))
"""

BENCHMARK = """
import os, runpy, sys
os.chdir(sys.argv[1])
del sys.argv[:2]
runpy.run_module("tests.benchmarks." + sys.argv[0], run_name="__main__", alter_sys=True)
"""
SCRIPTS = {"watching": PROBE, "costs": BENCHMARK}
"""What a table's rows run instead of gputui itself."""
ATTACH = ("attach", "--repeats", "5")
TELEMETRY = ("telemetry", "--fake", "8", "--seconds", "6")
THROUGHPUT = ("throughput", "--repeats", "3", "--seconds", "10")


@dataclass(frozen=True, slots=True)
class Measure:
    """A row of a table: a command, and what is taken of its run."""

    table: str
    name: str
    arguments: tuple[str, ...]
    """Of gputui, of a probe of the screen, or of a benchmark after its name."""
    value: Callable[[Times], float]
    status: int = 0

    def side(self, checkout: Path) -> Side:
        """Return the command of a checkout."""
        python = (sys.executable, "-P")
        command = (*python, "-m", "gputui", *self.arguments)
        if self.table in SCRIPTS:
            command = (*python, "-c", SCRIPTS[self.table], str(checkout), *self.arguments)
        return Side(str(checkout), command, {"PYTHONPATH": str(checkout)}, status=self.status)


def _printed(times: Times) -> float:
    return float(times.lines[-1][1])


def _cell(beginning: str) -> Callable[[Times], float]:
    """Return what reads the first number of the row that begins so."""

    def read(times: Times) -> float:
        line = next(line for _, line in times.lines if line.startswith(beginning))
        return float(line.removeprefix(beginning).split()[0].replace(",", ""))

    return read


MEASURES = (
    Measure("starting", "gputui --help, s", ("--help",), lambda t: t.ended_s),
    Measure("starting", "gputui --help, s of CPU", ("--help",), lambda t: t.cpu_s),
    Measure("starting", "an unknown preset, s", ("--run", "sdv"), lambda t: t.ended_s, status=2),
    Measure("starting", "4 local workers, result, s", (LOCAL, *RUN), Times.line_s),
    Measure("starting", "4 local workers, all gone, s", (LOCAL, *RUN), lambda t: t.gone_s),
    Measure("watching", "first frame of a demo, ms", ("first",), _printed),
    Measure("watching", "snapshot to rows, 1,000 GPUs, ms", ("rows",), _printed),
    Measure("watching", "64 GPUs, a row each, % of a core", ("steady", "8x8", "gpu"), _printed),
    Measure("watching", "64 GPUs, heat, % of a core", ("steady", "8x8", "heat"), _printed),
    Measure(
        "watching", "1,000 GPUs, a row each, % of a core", ("steady", "125x8", "gpu"), _printed
    ),
    Measure("watching", "1,000 GPUs, heat, % of a core", ("steady", "125x8", "heat"), _printed),
    Measure("costs", "head and scheduler, MB", ("memory",), _cell("head and scheduler")),
    Measure("costs", "agent and forkserver, MB", ("memory",), _cell("agent and forkserver")),
    Measure(
        "costs",
        "agent, 8 GPUs, % of a core",
        TELEMETRY,
        _cell("telemetry, 8 GPUs, 8 workers, 1 Hz"),
    ),
    Measure("costs", "warm svd beyond computing, s", ATTACH, _cell("svd, in one process")),
    Measure("costs", "warm smoke, a command, s", ATTACH, _cell("smoke, as a command")),
    Measure(
        "costs",
        "an empty task, µs",
        THROUGHPUT,
        lambda times: 1e6 / _cell("per second")(times),
    ),
    Measure(
        "costs",
        "an empty task, µs of the scheduler's CPU",
        THROUGHPUT,
        _cell("the scheduler's CPU for each, µs"),
    ),
    Measure(
        "costs", "head watching 1,000 GPUs, % of a core", THROUGHPUT, _cell("a frontend at 1 Hz")
    ),
)


def main() -> None:
    """Measure what was asked for, and print it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("old", type=Path)
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--only", default="", help="starting, watching, costs, or a row's words")
    arguments = parser.parse_args()
    old = arguments.old.resolve()
    for checkout in (old, OWN):
        _check(checkout)
    row(f"{arguments.pairs} pairs, medians", "old", "new", "ratio", "bar")
    runs: dict[tuple[str, ...], list[tuple[Times, Times]]] = {}
    with own_folders():
        for measure in MEASURES:
            if arguments.only in f"{measure.table}: {measure.name}":
                if measure.arguments not in runs:
                    runs[measure.arguments] = _pairs(measure, old, arguments.pairs)
                _print(measure, runs[measure.arguments])


def _check(checkout: Path) -> None:
    """Refuse a checkout whose gputui would not be the one that runs."""
    where = [sys.executable, "-P", "-c", "import gputui; print(gputui.__file__)"]
    found = subprocess.check_output(where, env={"PYTHONPATH": str(checkout)}, text=True).strip()
    if found != f"{checkout}/gputui/__init__.py":
        raise SystemExit(f"{checkout}: not a checkout of gputui; {found} would run")


def _pairs(measure: Measure, old: Path, number: int) -> list[tuple[Times, Times]]:
    """Return the runs of both sides, after one to warm up; each is first every other time.

    A side whose lines have no such figure ends it there, not after all pairs.
    """
    sides = measure.side(old), measure.side(OWN)
    for side in sides:
        measure.value(timed(side))
    found = []
    for turn in range(number):
        if turn % 2:
            new, before = timed(sides[1]), timed(sides[0])
        else:
            before, new = timed(sides[0]), timed(sides[1])
        found.append((before, new))
    return found


def _print(measure: Measure, runs: list[tuple[Times, Times]]) -> None:
    values = [(measure.value(old), measure.value(new)) for old, new in runs]
    old, new = (statistics.median(column) for column in zip(*values, strict=True))
    ratio = statistics.median(new / old for old, new in values)
    row(measure.name, f"{old:.2f}", f"{new:.2f}", f"{ratio:.2f} ×", f"≤ {BAR:.2f} ×")


if __name__ == "__main__":
    main()
