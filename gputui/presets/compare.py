"""The table of the 2 TB expression on your hardware: one CPU core, all, one GPU, all GPUs.

Each does `(x + 1)[::2, ::2].sum()` of normal numbers (see `random_sum.py`) for about the same
time: a short run measures its rate, and the measured run is sized by that. What 2 TB would take
is computed from the rate and marked as extrapolated, unless that much was truly done.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

from gputui.presets import Figure, Outcome, Parameter, Preset
from gputui.presets.job import Job
from gputui.presets.random_sum import TILE, add_tiles

TWO_TERABYTES = 500_000**2
"""Numbers of the published computation: 2 TB of float64."""
SIZE = 500_000
"""Side of the matrix whose first tiles are drawn."""


@dataclass(frozen=True, slots=True)
class Hardware:
    """One row of the table: what it is called, and how it does so many tiles."""

    name: str
    do: Callable[[int], None]
    first_tiles: int
    """Of the short run that measures the rate."""


def compute(job: Job) -> Outcome:
    """Measure each kind of hardware in turn."""
    rows = [_measured(each, job["seconds"]) for each in _hardware(job)]
    for row in rows:
        row["speed_up"] = row["numbers_per_s"] / rows[0]["numbers_per_s"]
    return Outcome(
        {"rows": rows, "expression": "(x + 1)[::2, ::2].sum(), x normal(10, 1) float64"},
        Figure(
            "bar",
            "numbers drawn and added",
            "numbers/s",
            labels=tuple(row["name"] for row in rows),
            y=tuple(row["numbers_per_s"] for row in rows),
            logarithmic=True,
        ),
    )


def _hardware(job: Job) -> list[Hardware]:
    """Return the rows that this cluster can fill; CPU rows always, on the workers' hosts."""
    first, hosts = job.workers[0], list({each.host: each for each in job.workers}.values())
    rows = [Hardware("one CPU core", partial(_on, job, [first], on_cores, 1), 4)]
    rows.append(Hardware("all CPU cores", partial(_on, job, hosts, on_cores, None), 64))
    if job.backend == "cupy":
        rows.append(Hardware("one GPU", partial(_on, job, [first], on_gpu, None), 2_000))
    if job.backend == "cupy" and len(job.workers) > 1:
        name = f"all {len(job.workers)} GPU workers"
        count = 2_000 * len(job.workers)
        rows.append(Hardware(name, partial(_on, job, job.workers, on_gpu, None), count))
    return rows


def _on(job: Job, workers: Any, function: Callable[..., None], cores: Any, tiles: int) -> None:
    """Share so many tiles out over these workers, and wait."""
    each = math.ceil(tiles / len(workers))
    spans = [(i * each, min((i + 1) * each, tiles)) for i in range(len(workers))]
    futures = [
        job.on(worker, function, job["seed"], span, cores)
        for worker, span in zip(workers, spans, strict=True)
        if span[0] < span[1]
    ]
    job.wait(futures, "measuring")


def on_cores(seed: int, tiles: tuple[int, int], cores: int | None) -> None:
    """Do these tiles with NumPy, on so many cores of this host; None is all of them."""
    cores = cores or _cores()
    each = math.ceil((tiles[1] - tiles[0]) / (4 * cores))
    spans = [(at, min(at + each, tiles[1])) for at in range(*tiles, each)]
    with ThreadPoolExecutor(cores, initializer=_run_anywhere) as pool:
        list(pool.map(partial(add_tiles, "numpy", SIZE, seed, band=TILE), spans))


def on_gpu(seed: int, tiles: tuple[int, int], cores: None) -> None:
    """Do these tiles on this worker's GPU."""
    add_tiles("cupy", SIZE, seed, tiles)


def _cores() -> int:
    """Return how many cores this host lets its processes use."""
    with ThreadPoolExecutor(1, initializer=_run_anywhere) as pool:
        return len(pool.submit(os.sched_getaffinity, 0).result())


def _run_anywhere() -> None:
    """Let this thread run on all cores, also where its worker is kept near a GPU."""
    os.sched_setaffinity(0, range(os.cpu_count() or 1))


def _measured(hardware: Hardware, seconds: float) -> dict[str, Any]:
    """Return one row: a short run for the rate, then one of about so many seconds."""
    hardware.do(hardware.first_tiles)
    rate = hardware.first_tiles / _timed(hardware, hardware.first_tiles)
    most = math.ceil(SIZE / TILE) ** 2
    tiles = max(1, min(most, round(rate * seconds)))
    elapsed_s = _timed(hardware, tiles)
    numbers = min(tiles * TILE**2, TWO_TERABYTES)
    return {
        "name": hardware.name,
        "numbers": numbers,
        "elapsed_s": elapsed_s,
        "numbers_per_s": numbers / elapsed_s,
        "two_terabytes_s": TWO_TERABYTES / numbers * elapsed_s,
        "extrapolated": numbers < TWO_TERABYTES,
    }


def _timed(hardware: Hardware, tiles: int) -> float:
    started = time.perf_counter()
    hardware.do(tiles)
    return time.perf_counter() - started


PRESET = Preset(
    name="compare",
    summary="the 2 TB expression on one CPU core, all of them, one GPU and all GPUs",
    parameters=(
        Parameter("seconds", float, 2.0, "that each should take", minimum=0.05, maximum=3600),
        Parameter("seed", int, 0, "of the random streams", minimum=0, maximum=2**63 - 1),
    ),
    compute=compute,
    units={"elapsed_s": "s", "numbers_per_s": "/s", "two_terabytes_s": "s", "speed_up": "×"},
    draws=True,
)
