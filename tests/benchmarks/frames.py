"""cuDF frames that are shuffled between two GPUs, next to dask-cuda's clusters: one table.

    python -m tests.benchmarks.frames [--rows 80] [--peers FOLDER] [--sides gputui,ucx,…]

A merge of 80 million rows with 40 million, a group-by that shuffles, `sort_values` and `set_index`,
by Dask's expressions alone. Sides: gputui, LocalCUDACluster over ucx with an RMM pool as it comes
(`ucx`) and with shuffles by tasks (`ucx, tasks`), and over tcp. Each is a process of its own. Each
result is compared with what it must be. Medians of three after a first one.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from tests.benchmarks.transfers import cluster, times_as_fast

SIDES = ("gputui", "ucx, tasks", "ucx", "tcp")
REPEATS = 3
BOUND_S = 150
PARTITION = 5_000_000
GROUPS = 10_000_000
FACTOR = 0x9E3779B97F4A7C15
SHIFT = 24


def main() -> None:
    """Run every side, or be one of them, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=80, help="millions")
    parser.add_argument("--peers", metavar="FOLDER")
    parser.add_argument("--sides", default=";".join(SIDES), help="separated by ;")
    parser.add_argument("--side", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        be(options.side, options.rows * 10**6)
        return
    sides = [side for side in options.sides.split(";") if side in SIDES]
    columns = {side: measured(side, options) for side in sides}
    names = list(dict.fromkeys(name for column in columns.values() for name in column))
    print("| what |", " | ".join(sides), "|\n|---|", "---|" * len(sides), sep="")
    for name in names:
        cells = [columns[side].get(name, "–") for side in sides]
        ratios = [f"{each} ({times_as_fast(cells[0], each):.2f} ×)" for each in cells[1:]]
        print(f"| {name} |", " | ".join([cells[0], *ratios]), "|")


def measured(side: str, options: argparse.Namespace) -> dict[str, str]:
    """Run a side in a process of its own; return what it measured, by row."""
    command = [sys.executable, "-m", "tests.benchmarks.frames", "--side", side]
    environ = dict(os.environ)
    if side != "gputui" and options.peers:
        environ["PYTHONPATH"] = f"{options.peers}:{environ.get('PYTHONPATH', '')}"
    try:
        lines = subprocess.run(
            [*command, "--rows", str(options.rows)],
            env=environ,
            stdout=subprocess.PIPE,
            timeout=BOUND_S,
        ).stdout
    except subprocess.TimeoutExpired as expired:
        lines = expired.stdout or b""
    return dict(json.loads(line) for line in lines.splitlines() if line.startswith(b'["'))


def be(side: str, rows: int) -> None:
    """Be one side: measure, and print a row of JSON for each thing."""
    import dask
    from distributed import Client

    if side.endswith("tasks"):
        dask.config.set({"dataframe.shuffle.method": "tasks"})
    with cluster(side.partition(",")[0], on_host=False) as one, Client(one) as client:
        client.wait_for_workers(2)
        for name, found in results(rows):
            print(json.dumps((name, found)), flush=True)
            print(side, name, found, file=sys.stderr, flush=True)


def results(rows: int) -> Iterator[tuple[str, str]]:
    """Yield the seconds of each operation."""
    import dask.dataframe as dd
    from distributed import wait

    def table(function: Callable[..., Any], number: int, **more: Any) -> Any:
        spans = [(at, min(at + PARTITION, number)) for at in range(0, number, PARTITION)]
        frame = dd.from_map(function, spans, **more).persist()
        wait(frame)
        return frame

    # Half of the left keys are those of a row on the right, which has each once.
    left = table(random_keys, rows, below=rows)
    right = table(numbered_keys, rows // 2)
    matches = int((left["key"] < rows // 2).sum().compute())

    def merged() -> bool:
        return len(left.merge(right, on="key")) == matches

    def merged_and_kept() -> bool:
        kept = left.merge(right, on="key").persist()
        wait(kept)
        return len(kept) == matches

    def grouped() -> bool:
        groups = left.assign(group=left["key"] % GROUPS)
        counts = groups.groupby("group")["x"].count(split_out=left.npartitions)
        return int(counts.sum().compute()) == rows

    def ordered() -> bool:
        kept = left.sort_values("key").persist()
        wait(kept)
        return all(kept.map_partitions(rises, meta=("rises", bool)).compute().to_numpy())

    def indexed() -> bool:
        kept = left.set_index("key").persist()
        wait(kept)
        return len(kept) == rows

    works = {
        "merge, counted": merged,
        "merge, kept": merged_and_kept,
        "group-by, shuffled": grouped,
        "sort_values": ordered,
        "set_index": indexed,
    }
    for name, work in works.items():
        yield name, seconds(work)


def seconds(work: Callable[[], bool]) -> str:
    """Return the seconds of some work, or how it fails."""
    times = []
    for _ in range(REPEATS + 1):
        time.sleep(0.3)
        started = time.perf_counter()
        try:
            right = work()
        except Exception as error:
            return f"fails: {type(error).__name__}: {error}"[:200]
        times.append(time.perf_counter() - started)
        if not right:
            return "wrong"
    return f"{statistics.median(times[1:]):.3f} s"


def random_keys(span: tuple[int, int], below: int) -> Any:
    """Return rows with keys at random, and a number each."""
    import cudf
    import cupy

    words = cupy.arange(*span, dtype="u8")
    words *= cupy.uint64(FACTOR)
    keys = (words >> cupy.uint64(SHIFT)) % cupy.uint64(below)
    return cudf.DataFrame({"key": keys.astype("i8"), "x": cupy.ones(len(keys))})


def numbered_keys(span: tuple[int, int]) -> Any:
    """Return rows with a key for each, and a number each."""
    import cudf
    import cupy

    keys = cupy.arange(*span, dtype="i8")
    return cudf.DataFrame({"key": keys, "y": keys.astype("f8")})


def rises(frame: Any) -> Any:
    """Return whether the keys of a partition are in order, as pandas."""
    import pandas

    return pandas.Series([bool(frame["key"].is_monotonic_increasing)])


if __name__ == "__main__":
    main()
