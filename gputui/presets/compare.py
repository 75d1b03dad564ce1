"""The table of the 2 TB expression on your hardware: one CPU core, all, one GPU, all GPUs.

Each does `(x + 1)[::2, ::2].sum()` of normal numbers (see `random_sum.py`) for about the same
time: a short run measures its rate, and the measured run is sized by that. What 2 TB would take
is computed from the rate and marked as extrapolated, unless that much was truly done.
"""

import math
import os
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

from gputui.presets import Figure, Job, Machine, Memory, Outcome, Parameter, Preset, RunWorker
from gputui.presets.random_sum import TILE, Span, add_tiles, cut

TWO_TERABYTES = 500_000**2
"""Numbers of the published computation: 2 TB of float64."""
SIZE = 500_000
"""Side of the matrix whose first tiles are drawn."""


@dataclass(frozen=True, slots=True)
class Hardware:
    """One row of the table."""

    name: str
    workers: tuple[RunWorker, ...]
    do: Callable[[int, Span], None]
    """A task: a seed and a span of tiles, done on a worker."""
    first_tiles: int
    """Of the short run that measures the rate."""


def compute(job: Job) -> Outcome:
    """Measure each kind of hardware in turn."""
    rows = [_measured(job, each) for each in _hardware(job)]
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
    every, first = job.workers, job.workers[:1]
    one_a_host = tuple({each.host: each for each in every}.values())
    rows = [
        Hardware("one CPU core", first, on_one_core, 4),
        Hardware("all CPU cores", one_a_host, on_all_cores, 64),
    ]
    if job.backend == "cupy":
        rows.append(Hardware("one GPU", first, on_gpu, 2_000))
    if job.backend == "cupy" and len(every) > 1:
        rows.append(Hardware(f"all {len(every)} GPU workers", every, on_gpu, 2_000 * len(every)))
    return rows


def _measured(job: Job, hardware: Hardware) -> dict[str, Any]:
    """Return one row: a short run for the rate, then one of about so many seconds."""
    _timed(job, hardware, hardware.first_tiles)
    rate = hardware.first_tiles / _timed(job, hardware, hardware.first_tiles)
    most = math.ceil(SIZE / TILE) ** 2
    tiles = max(1, min(most, round(rate * job["seconds"])))
    elapsed_s = _timed(job, hardware, tiles)
    numbers = min(tiles * TILE**2, TWO_TERABYTES)
    return {
        "name": hardware.name,
        "numbers": numbers,
        "elapsed_s": elapsed_s,
        "numbers_per_s": numbers / elapsed_s,
        "two_terabytes_s": TWO_TERABYTES / numbers * elapsed_s,
        "extrapolated": numbers < TWO_TERABYTES,
    }


def _timed(job: Job, hardware: Hardware, tiles: int) -> float:
    """Share so many tiles out over the workers, and return how long they took, in seconds."""
    spans = cut((0, tiles), len(hardware.workers))
    started = time.perf_counter()
    futures = [
        job.on(worker, hardware.do, job["seed"], span)
        for worker, span in zip(hardware.workers, spans, strict=False)
    ]
    job.wait(futures, hardware.name)
    return time.perf_counter() - started


def on_one_core(seed: int, tiles: Span) -> None:
    """Do these tiles with NumPy on one core of this host."""
    _on_cores(1, seed, tiles)


def on_all_cores(seed: int, tiles: Span) -> None:
    """Do these tiles with NumPy on all cores of this host."""
    _on_cores(_cores(), seed, tiles)


def on_gpu(seed: int, tiles: Span) -> None:
    """Do these tiles on this worker's GPU."""
    add_tiles("cupy", SIZE, seed, tiles)


def _on_cores(cores: int, seed: int, tiles: Span) -> None:
    with ThreadPoolExecutor(cores, initializer=_run_anywhere) as pool:
        list(pool.map(partial(add_tiles, "numpy", SIZE, seed, band=TILE), cut(tiles, 4 * cores)))


def _cores() -> int:
    """Return how many cores this host lets its processes use."""
    with ThreadPoolExecutor(1, initializer=_run_anywhere) as pool:
        return len(pool.submit(os.sched_getaffinity, 0).result())


def _run_anywhere() -> None:
    """Let this thread run on all cores, also where its worker is kept near a GPU."""
    os.sched_setaffinity(0, range(os.cpu_count() or 1))


def _estimate(values: Mapping[str, Any], machine: Machine) -> Memory:
    """A tile for each core of a host, with its part that is summed; on a GPU next to nothing."""
    cores = max(machine.threads, os.cpu_count() or 1)
    return Memory(0 if machine.backend == "cupy" else cores * 12 * TILE**2)


PRESET = Preset(
    name="compare",
    summary="the 2 TB expression on one CPU core, all of them, one GPU and all GPUs",
    parameters=(
        Parameter("seconds", float, 2.0, "that each should take", minimum=0.05, maximum=3600),
        Parameter("seed", int, 0, "of the random streams", minimum=0, maximum=2**63 - 1),
    ),
    compute=compute,
    estimate=_estimate,
    units={"elapsed_s": "s", "numbers_per_s": "/s", "two_terabytes_s": "s", "speed_up": "×"},
    draws=True,
)
