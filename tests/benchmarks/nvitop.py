"""nvitop and gputui's screen on the same GPUs: `python -m tests.benchmarks.nvitop [--seconds 30]`.

A cluster of this machine's GPUs is started and both watch it in turn, once a second, in ptys of
120×40. nvitop reads NVML itself; with gputui the agent reads, the head puts together and the
frontend draws, so that the CPU time of all three counts; what is there to compute, the scheduler,
the forkserver and the workers, is printed but does not. The bar is less CPU than nvitop.
"""

import argparse
import contextlib
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.ptys import CELLS, Counted, cpu_s, resident_mb
from tests.benchmarks.sides import marked, own_folders

SETTLING_S = 10.0
MARK = "GPUTUI_BENCHMARK"
GPUTUI = (sys.executable, "-m", "gputui")
PARTS = {
    "gputui.head.scheduler": "scheduler",
    "gputui.head": "head",
    "gputui.agent forkserver": "forkserver and workers",
    "gputui.agent": "agent",
    "gputui attach": "frontend",
}
"""What a command line has in it → whose process it is; the first that fits."""
COUNTED = ("frontend", "head", "agent")
NOT_COUNTED = ("scheduler", "forkserver and workers")


@dataclass(frozen=True, slots=True)
class Window:
    """What some processes took a second: in percent of a core, by part; and what was sent."""

    cpu_percent: dict[str, float]
    resident_mb: float
    kb_per_s: float


def gputui_parts() -> dict[str, list[int]]:
    """Return this benchmark's processes of gputui, by part."""
    parts: dict[str, list[int]] = {name: [] for name in PARTS.values()}
    for pid in marked([f"{MARK}={os.getpid()}"]):
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
            name = next((part for sign, part in PARTS.items() if sign in words), None)
            if name:
                parts[name].append(pid)
    return parts


def measured(screen: Counted, parts: dict[str, list[int]], seconds: float) -> Window:
    """Return what processes take while their screen is watched for some seconds."""
    before = {name: cpu_s(pids) for name, pids in parts.items()}
    began = time.monotonic()
    sent = screen.rest(seconds)
    spent = time.monotonic() - began
    cpu = {name: 100 * (cpu_s(pids) - before[name]) / spent for name, pids in parts.items()}
    drawing = [pid for name, pids in parts.items() if name not in NOT_COUNTED for pid in pids]
    return Window(cpu, resident_mb(drawing), sent / spent / 1000)


@contextlib.contextmanager
def shown(*command: str) -> Iterator[Counted]:
    """Show a screen until it has settled; raises RuntimeError where it ends before."""
    screen = Counted.start(*command)
    try:
        screen.rest(SETTLING_S)
        if screen.ended:
            raise RuntimeError(f"{' '.join(command)} ended: {screen.last.decode(errors='replace')}")
        yield screen
    finally:
        screen.end()


def watch_nvitop(command: Sequence[str], seconds: float) -> Window:
    """Return what nvitop takes."""
    with shown(*command, "--monitor", "full", "--interval", "1") as screen:
        return measured(screen, {"nvitop": [screen.pty.pid]}, seconds)


def watch_gputui(name: str, seconds: float) -> Window:
    """Return what gputui takes."""
    with shown(*GPUTUI, "attach", name) as screen:
        screen.type(b"1zz")
        screen.rest(2.0)
        return measured(screen, gputui_parts(), seconds)


def nvitop_command() -> list[str]:
    """Return how nvitop is called here; raises RuntimeError where it is not installed."""
    found = shutil.which("nvitop")
    command = [found] if found else [sys.executable, "-m", "nvitop"]
    asked = subprocess.run([*command, "--version"], capture_output=True, text=True)
    if asked.returncode:
        raise RuntimeError(f"nvitop is not installed: {asked.stderr.strip()[-200:]}")
    print(asked.stdout.strip())
    return command


@contextlib.contextmanager
def cluster(hosts: str, name: str = "bench") -> Iterator[str]:
    """Start a cluster, and give its name."""
    done = subprocess.run([*GPUTUI, "up", hosts, "--name", name], text=True, capture_output=True)
    print((done.stdout + done.stderr).strip())
    if done.returncode:
        raise RuntimeError("the cluster did not start")
    try:
        yield name
    finally:
        subprocess.run([*GPUTUI, "down", name], capture_output=True)


def table(nvitop: Sequence[Window], gputui: Sequence[Window]) -> None:
    """Print medians side by side."""

    def of(windows: Sequence[Window], *names: str) -> float:
        sums = [sum(window.cpu_percent[name] for name in names) for window in windows]
        return statistics.median(sums)

    def line(what: str, theirs: float | None, ours: float, unit: str, verdict: str = "") -> None:
        left = "–" if theirs is None else f"{theirs:.2f}"
        print(f"{what:34}{left:>10}{ours:>10.2f}  {unit:4} {verdict}")

    print(f"{'':34}{'nvitop':>10}{'gputui':>10}")
    theirs, ours = of(nvitop, "nvitop"), of(gputui, *COUNTED)
    line("CPU of a core", theirs, ours, "%", "met" if ours < theirs else "NOT MET")
    for name in COUNTED:
        line(f"  {name}", None, of(gputui, name), "%")
    for name in NOT_COUNTED:
        line(f"  not counted: {name}", None, of(gputui, name), "%")
    sent = [statistics.median(w.kb_per_s for w in windows) for windows in (nvitop, gputui)]
    line("to the terminal", sent[0], sent[1], "kB/s")
    held = [statistics.median(w.resident_mb for w in windows) for windows in (nvitop, gputui)]
    line("resident: nvitop; frontend, head, agent", held[0], held[1], "MB")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--hosts", default="localhost")
    arguments = parser.parse_args()
    os.environ[MARK] = f"{os.getpid()}"
    command = nvitop_command()
    print(f"{CELLS[0]}×{CELLS[1]}, {arguments.rounds} × {arguments.seconds:.0f} s each, in turn")
    theirs, ours = [], []
    with own_folders(), cluster(arguments.hosts) as name:
        for _ in range(arguments.rounds):
            theirs.append(watch_nvitop(command, arguments.seconds))
            ours.append(watch_gputui(name, arguments.seconds))
    table(theirs, ours)


if __name__ == "__main__":
    main()
