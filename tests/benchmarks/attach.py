"""What a run of a preset takes beyond its computation, on a warm cluster.

    python -m tests.benchmarks.attach               # on this machine's CPUs
    python -m tests.benchmarks.attach --gpus 1      # on so many of its GPUs

In one process: the second and later runs on one Dask client. As a command of its own:
`gputui --attach NAME --run smoke`, from the start of the process to its end.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Any

from distributed import Client

from gputui import presets
from gputui.client.gpucluster import connect
from gputui.runs import execution
from tests.benchmarks.sides import Side, own_folders, row, timed

NAME = "warm"
GPUTUI = (sys.executable, "-m", "gputui")
SMALL: Mapping[str, Mapping[str, Any]] = {
    "smoke": {"size": 1000},
    "svd": {"rows": 2000, "cols": 50},
    "random-sum": {"size": 2000},
    "mean": {"rows": 10_000},
    "matmul": {"size": 256},
    "convert": {"mebibytes": 1},
    "transfer": {"mebibytes": 1},
}


def main() -> None:
    """Start a cluster, measure on it, and stop it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--gpus", type=int, default=0, help="so many of this machine")
    arguments = parser.parse_args()
    hosts = "localhost" if arguments.gpus else "localhost gpus=none workers=2 nthreads=1"
    limit = ("--workers", str(arguments.gpus)) if arguments.gpus else ()
    with own_folders():
        subprocess.run([*GPUTUI, "up", hosts, "--name", NAME, *limit], check=True)
        try:
            row("medians", "beyond", "computation", "bar")
            in_one_process(arguments.repeats)
            as_a_command(arguments.repeats)
        finally:
            subprocess.run([*GPUTUI, "down", NAME], check=True)


def in_one_process(repeats: int) -> None:
    """Print a line for each preset."""
    with connect(NAME) as cluster, Client(cluster) as client:
        for name, parameters in SMALL.items():
            preset = presets.get(name)
            execution.execute(client, preset, parameters)
            beyond, within = [], []
            for _ in range(repeats):
                started = time.perf_counter()
                within.append(execution.execute(client, preset, parameters).elapsed_s)
                beyond.append(time.perf_counter() - started - within[-1])
            _line(f"{name}, in one process", beyond, within, "≤ 0.15 s")


def as_a_command(repeats: int) -> None:
    """Print a line for `smoke`, which every cluster can run."""
    command = (*GPUTUI, "--attach", NAME, "--run", "smoke", "--json", "--quiet")
    beyond, within = [], []
    for _ in range(repeats):
        times = timed(Side("smoke", command))
        within.append(float(json.loads(times.lines[-1][1])["elapsed_s"]))
        beyond.append(times.ended_s - within[-1])
    _line("smoke, as a command", beyond, within, "≤ 1.00 s")


def _line(what: str, beyond: list[float], within: list[float], bar: str) -> None:
    row(what, f"{statistics.median(beyond):.3f} s", f"{statistics.median(within):.3f} s", bar)


if __name__ == "__main__":
    main()
