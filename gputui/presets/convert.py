"""NumPy chunks to CuPy with `map_blocks(cupy.asarray)` and back, and what the bus can do.

First a Dask array of NumPy chunks, drawn before, goes to the devices and comes back, and must be
what it was: `round_trip_s` is the time of these tasks, Dask's own part included. Then all workers
at once copy one buffer to their device and back, out of ordinary (pageable) memory as
`cupy.asarray` does, and out of pinned memory, as the card does at its best: medians, and nothing
but the copies. On NumPy, where there is no device, the one rate is of copies within host memory.
"""

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

from gputui.errors import RunError
from gputui.presets import (
    Figure,
    Job,
    Machine,
    Memory,
    Outcome,
    Parameter,
    Preset,
    array_module,
    to_host,
)
from gputui.presets.job import finish
from gputui.presets.random_streams import draw

REPEATS = 5
COLS = 1024


def compute(job: Job) -> Outcome:
    """Convert a collection and check it, then measure each worker's bus."""
    size = job["mebibytes"] * 2**20
    chunk_bytes = min(size, 2**26)
    converted_s = _convert_collection(job, chunk_bytes)
    rates = job.each_worker(measure, job.backend, size, stage="copying")
    names = tuple(worker.name for worker in job.workers)
    workers = [{"worker": name, **each} for name, each in zip(names, rates, strict=True)]
    shown, title = "within_host_bytes_per_s", "within host memory"
    if job.backend == "cupy":
        shown, title = "pinned_to_device_bytes_per_s", "host to device, pinned memory"
    best = tuple(each[shown] / 1e9 for each in rates)
    return Outcome(
        {
            "round_trip_is_exact": True,
            "round_trip_bytes": chunk_bytes * len(job.workers),
            "round_trip_s": converted_s,
            "workers": workers,
        },
        Figure("bar", title, "GB/s", labels=names, y=best),
    )


def _convert_collection(job: Job, chunk_bytes: int) -> float:
    """Send a chunk for each worker to the devices and back; return how long it took.

    Raises RunError where one came back other than it went.
    """
    import dask.array as da
    import numpy as np

    rows = max(1, chunk_bytes // (8 * COLS))
    chunks = ((rows,) * len(job.workers), (COLS,))
    known = {"dtype": "f8", "meta": np.empty((0, 0))}
    x = job.persist(da.map_blocks(_drawn, job["seed"], chunks=chunks, **known), "drawing")
    started = time.perf_counter()
    there = x.map_blocks(to_device, job.backend, **known)
    back = job.persist(there.map_blocks(to_host, **known), "converting")
    elapsed_s = time.perf_counter() - started
    if not job.compute((back == x).all(), "comparing"):
        raise RunError("a chunk came back from the device other than it went")
    return elapsed_s


def _drawn(seed: int, block_info: Any = None) -> Any:
    return draw("numpy", seed, COLS, block_info[None]["array-location"][0])


def to_device(block: Any, backend: str) -> Any:
    """Return the block on this worker's device: what `map_blocks(cupy.asarray)` does."""
    return array_module(backend).asarray(block)


def measure(backend: str, size: int) -> dict[str, float]:
    """Return the bytes per second of each way to copy `size` bytes; medians."""
    import numpy as np

    pageable = np.ones(size, dtype=np.uint8)
    if backend == "numpy":
        other = np.empty_like(pageable)
        ways: dict[str, Callable[[], object]] = {
            "within_host_bytes_per_s": lambda: np.copyto(other, pageable)
        }
    else:
        import cupy as cp

        pinned = np.frombuffer(cp.cuda.alloc_pinned_memory(size), np.uint8, size)
        pinned[:] = 1
        device = cp.empty(size, np.uint8)
        ways = {
            "pageable_to_device_bytes_per_s": lambda: device.set(pageable),
            "pinned_to_device_bytes_per_s": lambda: device.set(pinned),
            "pinned_to_host_bytes_per_s": lambda: device.get(out=pinned),
        }
    rates = {}
    for name, copy in ways.items():
        times = []
        for _ in range(REPEATS + 1):  # the first one opens what stays open
            finish(backend)
            started = time.perf_counter()
            copy()
            finish(backend)
            times.append(time.perf_counter() - started)
        rates[name] = size / statistics.median(times[1:])
    return rates


def _estimate(values: Mapping[str, Any], machine: Machine) -> Memory:
    buffers = 1 if machine.backend == "cupy" else 3
    fits = machine.smallest_bytes // buffers // 2**20
    return Memory(buffers * values["mebibytes"] * 2**20, f"use mebibytes ≤ {fits:,}")


PRESET = Preset(
    name="convert",
    summary="NumPy chunks to CuPy and back, and each GPU's host-to-device bandwidth",
    parameters=(
        Parameter("mebibytes", int, 1024, "of the buffer", 64, minimum=1, unit="MiB"),
        Parameter("seed", int, 0, "of the chunks", minimum=0, maximum=2**63 - 1),
    ),
    compute=compute,
    estimate=_estimate,
    units={
        "round_trip_bytes": "B",
        "round_trip_s": "s",
        "pageable_to_device_bytes_per_s": "B/s",
        "pinned_to_device_bytes_per_s": "B/s",
        "pinned_to_host_bytes_per_s": "B/s",
        "within_host_bytes_per_s": "B/s",
    },
    draws=True,
)
