"""`(x + 1)[::2, ::2].sum()` of x normal(10, 1), 2 TB of it by default on GPUs, never held at once.

x is cut into fixed logical tiles of 1,000 × 1,000, each with a random stream of its own, and a
task does many of them: so a seed gives the same sum, to the last bit, on any number of workers
and however the tiles are shared out. Every number of x is drawn; the mean of all of them comes
out beside the strided sum and shows it. On CuPy one kernel draws, adds and sums in registers.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any

from gputui.presets import Machine, Memory, Outcome, Parameter, Preset
from gputui.presets.job import Job

TILE = 1000
"""Rows and columns of a logical tile; part of what a seed means."""
MEAN, DEVIATION = 10.0, 1.0


def compute(job: Job) -> Outcome:
    """Share the tiles out as a few tasks for each worker, and add up their partial sums."""
    size, seed = job["size"], job["seed"]
    ranges = _ranges(_tiles(size), job["tasks"] or _tasks(job.machine))
    started = time.perf_counter()
    futures = job.map(
        add_tiles,
        [job.backend] * len(ranges),
        [size] * len(ranges),
        [seed] * len(ranges),
        ranges,
    )
    parts = job.results(futures, "drawing and adding")
    elapsed_s = time.perf_counter() - started
    strided = math.fsum(value for part in parts for value in part[0])
    everything = math.fsum(value for part in parts for value in part[1])
    return Outcome(_result(size, strided, everything, elapsed_s))


def _result(size: int, strided: float, everything: float, elapsed_s: float) -> dict[str, Any]:
    """Return the sum beside what statistics expect of it."""
    chosen = math.ceil(size / 2) ** 2
    expected = chosen * (MEAN + 1)
    return {
        "sum": strided,
        "expected": expected,
        "standard_errors": (strided - expected) / (DEVIATION * math.sqrt(chosen)),
        "numbers": size * size,
        "numbers_per_s": size * size / elapsed_s,
        "mean_of_all": everything / (size * size),
    }


def _tiles(size: int) -> int:
    return math.ceil(size / TILE) ** 2


def _tasks(machine: Machine) -> int:
    """Return how many tasks keep all workers busy to the end, and the scheduler idle."""
    return 4 * machine.threads


def _ranges(count: int, pieces: int) -> list[tuple[int, int]]:
    """Cut `count` things into at most `pieces` runs of nearly one length.

    >>> _ranges(5, 2)
    [(0, 3), (3, 5)]
    """
    length = math.ceil(count / pieces)
    return [(start, min(start + length, count)) for start in range(0, count, length)]


def add_tiles(
    backend: str, size: int, seed: int, tiles: tuple[int, int]
) -> tuple[list[float], list[float]]:
    """Return for each tile the sum of its part of `(x + 1)[::2, ::2]`, and that of its x."""
    if backend == "cupy":
        return _add_tiles_cupy(size, seed, tiles)
    return _add_tiles_numpy(size, seed, tiles)


def _add_tiles_numpy(
    size: int, seed: int, tiles: tuple[int, int]
) -> tuple[list[float], list[float]]:
    import numpy as np

    across = math.ceil(size / TILE)
    buffer = np.empty(TILE * TILE)
    strided, everything = [], []
    for tile in range(*tiles):
        height = min(TILE, size - tile // across * TILE)
        width = min(TILE, size - tile % across * TILE)
        x = buffer[: height * width].reshape(height, width)
        stream = np.random.Generator(np.random.SFC64([seed, tile]))
        stream.standard_normal(out=x)
        x *= DEVIATION
        x += MEAN
        strided.append(float((x[::2, ::2] + 1).sum()))
        everything.append(float(x.sum()))
    return strided, everything


def _estimate(values: Mapping[str, Any], machine: Machine) -> Memory:
    partial_sums = 64 * math.ceil(_tiles(values["size"]) / (values["tasks"] or _tasks(machine)))
    tile = 0 if machine.backend == "cupy" else 8 * TILE * TILE
    return Memory(peak_bytes=tile + partial_sums, change="use a smaller size, or more tasks")


PRESET = Preset(
    name="random-sum",
    summary="(x + 1)[::2, ::2].sum() of normal numbers: 2 TB of them on GPUs, never held at once",
    parameters=(
        Parameter(
            "size",
            int,
            500_000,
            "side of the square x; smaller by default on CPUs, where 2 TB take minutes to hours",
            cpu_default=20_000,
            minimum=1,
            maximum=10_000_000,
            unit="numbers",
        ),
        Parameter("seed", int, 0, "of the random streams", minimum=0, maximum=2**63 - 1),
        Parameter("tasks", int, None, "how many tasks; auto is four a thread", minimum=1),
    ),
    compute=compute,
    estimate=_estimate,
    units={"numbers_per_s": "/s"},
)
