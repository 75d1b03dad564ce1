"""Adds two arrays on every worker's own device, and reports which device that is.

The shortest way to see that each worker computes, that what it computes is right, and that it
sits on the GPU it was pinned to: the UUID of the device that its CUDA context is on, next to the
one it was given.
"""

from collections.abc import Mapping
from typing import Any

from gputui.presets import Job, Machine, Memory, Outcome, Parameter, Preset, array_module
from gputui.presets.workers import pinned_uuid


def compute(job: Job) -> Outcome:
    """Run one small task on every worker and gather what each saw."""
    seen = job.each_worker(add, job.backend, job["size"], stage="adding")
    rows = [{"worker": worker.name, **each} for worker, each in zip(job.workers, seen, strict=True)]
    return Outcome(
        {
            "all_right": all(row["sum_is_right"] and row["pinned_right"] for row in rows),
            "devices": len({row["device"] for row in rows if row["device"]}),
            "workers": rows,
        }
    )


def add(backend: str, size: int) -> dict[str, Any]:
    """Return the check of a + b, and the device's UUID; None on a CPU."""
    from gputui.worker.cuda import driver  # imports NumPy, which a list of presets need not

    xp = array_module(backend)
    a, b = xp.arange(size, dtype="int64"), xp.full(size, 2, dtype="int64")
    is_right = int((a + b).sum()) == size * (size - 1) // 2 + 2 * size
    device = driver.uuid() if backend == "cupy" else None
    pinned = pinned_uuid() if backend == "cupy" else None
    return {
        "device": device,
        "pinned_to": pinned,
        "pinned_right": pinned is None or pinned == device,
        "sum_is_right": is_right,
    }


def _estimate(values: Mapping[str, Any], machine: Machine) -> Memory:
    """Two arrays of integers, and their sum."""
    return Memory(3 * 8 * values["size"], f"use size ≤ {machine.smallest_bytes // 24:,}")


PRESET = Preset(
    name="smoke",
    summary="add two arrays on every worker, and check that each sits on its own GPU",
    parameters=(Parameter("size", int, 1_000_000, "of each array", minimum=1, maximum=10**9),),
    compute=compute,
    estimate=_estimate,
)
