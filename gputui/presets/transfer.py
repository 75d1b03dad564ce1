"""Worker-to-worker bandwidth, every pair, as a heat map.

Each worker makes a buffer on its device; then, one pair at a time, another worker asks for it.
What is measured is what a task that needs another worker's result waits for, Dask's own part
included: between workers of one host a copy from device to device; between hosts from device to
host, over the network with the cluster's encryption, and to the device again.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from gputui.errors import PresetError
from gputui.presets import Figure, Machine, Memory, Outcome, Parameter, Preset
from gputui.presets.backends import array_module
from gputui.presets.job import Job, RunWorker


def compute(job: Job) -> Outcome:
    """Time every ordered pair of the first `most` workers."""
    workers = job.workers[: job["most"]]
    if len(workers) < 2:
        raise PresetError("transfer needs at least two workers: --workers 2, or another host")
    size = job["mebibytes"] * 2**20
    sources = [job.on(each, make, job.backend, size, job["seed"]) for each in workers]
    job.wait(sources, "making")
    rates = [
        [
            None if giver is taker else _rate(job, source, taker, size)
            for giver, source in zip(workers, sources, strict=True)
        ]
        for taker in workers
    ]
    known = [rate for row in rates for rate in row if rate is not None]
    return Outcome(
        {
            "slowest_bytes_per_s": min(known),
            "fastest_bytes_per_s": max(known),
            "workers": [each.name for each in workers],
            "bytes_per_s": rates,
        },
        Figure(
            kind="heat",
            title="worker to worker, GB/s (from: across, to: down)",
            labels=tuple(each.name for each in workers),
            matrix=tuple(tuple(r and r / 1e9 for r in row) for row in rates),
        ),
    )


def _rate(job: Job, source: Any, taker: RunWorker, size: int) -> float:
    """Return the bytes per second at which one worker gets the other's buffer."""
    started = time.perf_counter()
    future = job.on(taker, take, source)
    job.wait([future], f"to {taker.name}")
    return size / (time.perf_counter() - started)


def make(backend: str, size: int, seed: int) -> Any:
    """Return a buffer of bytes that no compression makes smaller."""
    import numpy as np

    buffer = np.frombuffer(np.random.default_rng(seed).bytes(size), "u1")
    return array_module(backend).asarray(buffer)


def take(buffer: Any) -> int:
    """Return the size of what has come."""
    return int(buffer.nbytes)


def _estimate(values: Mapping[str, Any], machine: Machine) -> Memory:
    held = min(machine.workers, values["most"]) * values["mebibytes"] * 2**20
    fits = machine.smallest_bytes // min(machine.workers, values["most"]) // 2**20
    return Memory(held, f"use mebibytes ≤ {fits:,}")


PRESET = Preset(
    name="transfer",
    summary="worker-to-worker bandwidth, every pair, as a heat map",
    parameters=(
        Parameter("mebibytes", int, 128, "of the buffer", 32, minimum=1, unit="MiB"),
        Parameter("most", int, 16, "how many workers to pair", minimum=2, maximum=128),
        Parameter("seed", int, 0, "of the buffers", minimum=0, maximum=2**63 - 1),
    ),
    compute=compute,
    estimate=_estimate,
    units={
        "slowest_bytes_per_s": "B/s",
        "fastest_bytes_per_s": "B/s",
        "bytes_per_s": "B/s",
    },
    draws=True,
)
