"""Measure how arrays get from worker to worker: each pair's way, latency, and bandwidth.

One pair at a time: a worker makes a buffer, another one needs it. What is measured is what the
other one's task waits for, from its worker's request to the buffer in its own memory, by that
worker's own record. Next to it stands what the interconnect between two GPUs can carry.
"""

import statistics
from collections.abc import Mapping
from itertools import permutations
from typing import Any

from gputui.errors import PresetError
from gputui.presets import Figure, Job, Machine, Memory, Outcome, Parameter, Preset, RunWorker
from gputui.presets.random_streams import draw

SMALL, MEDIUM = 2**16, 2**24  # bytes: these show the latency, and what a usual chunk reaches
REPEATS = 3  # after a first one, which opens what stays open
COPIES = 2  # of the largest buffer on a worker: its own, and the received one


def compute(job: Job) -> Outcome:
    """Time every ordered pair of the first `most` workers."""
    workers = job.workers[: job["most"]]
    if len(workers) < 2:
        raise PresetError("transfer needs at least two workers: --workers 2, or another host")
    largest = job["mebibytes"] * 2**20
    pairs = [_pair(job, giver, taker, largest) for giver, taker in permutations(workers, 2)]
    rates = {(each["from"], each["to"]): each["largest_bytes_per_s"] for each in pairs}
    known = [rate for rate in rates.values() if rate]
    giga = {pair: rate and rate / 1e9 for pair, rate in rates.items()}
    names = tuple(each.name for each in workers)
    return Outcome(
        {
            "slowest_bytes_per_s": min(known, default=None),
            "fastest_bytes_per_s": max(known, default=None),
            "pairs": pairs,
        },
        Figure(
            kind="heat",
            title="worker to worker, GB/s (from: across, to: down)",
            y_label="GB/s",
            labels=names,
            matrix=tuple(tuple(giga.get((a, b)) for a in names) for b in names),
        ),
    )


def _pair(job: Job, giver: RunWorker, taker: RunWorker, largest: int) -> dict[str, Any]:
    """Return one row: how buffers get from one worker to another."""
    sizes = (SMALL, medium := min(MEDIUM, largest), largest)
    small_s, medium_s, largest_s = (_seconds(job, giver, taker, size) for size in sizes)
    [(path, hardware)] = job.results([job.on(taker, way, giver.uuid)], f"to {taker.name}")
    return {
        "from": giver.name,
        "to": taker.name,
        "path": path,
        "64_KiB_s": small_s,
        "16_MiB_bytes_per_s": medium_s and medium / medium_s,
        "largest_bytes_per_s": largest_s and largest / largest_s,
        "hardware_bytes_per_s": hardware,
    }


def _seconds(job: Job, giver: RunWorker, taker: RunWorker, size: int) -> float | None:
    """Time how long a worker waits for the other's fresh buffer; None if a third one took it."""
    times = []
    for _ in range(REPEATS + 1):
        source = job.on(giver, make, job.backend, size)
        job.wait([source], f"on {giver.name}")
        times += job.results([job.on(taker, take, source, str(source.key))], f"to {taker.name}")
    waited = [each for each in times[1:] if each is not None]
    return statistics.median(waited) if waited else None


def make(backend: str, size: int) -> Any:
    """Return a buffer of numbers that no compression makes smaller."""
    return draw(backend, 0, 1024, (0, size // 8192))


def take(buffer: Any, key: str) -> float | None:
    """Return how long this worker waited for the buffer; None where it had it already."""
    from distributed import get_worker

    log = reversed(get_worker().transfer_incoming_log)
    return next((float(each["stop"] - each["start"]) for each in log if key in each["keys"]), None)


def way(there: str | None) -> tuple[str, float | None]:
    """Return the path of the last transfer to this worker from device `there`, and its bytes/s."""
    from distributed import get_worker

    from gputui.agent.gpu.nvml import between
    from gputui.model.usage import Way
    from gputui.presets.workers import pinned_uuid
    from gputui.worker.transfers.loans import last_ways

    (last,) = last_ways
    if last is Way.DEVICE:
        return between(pinned_uuid(), there)
    if last is Way.MEMORY_FILE:
        return "shared memory", None
    return str(get_worker().address).partition(":")[0].upper(), None


def _estimate(values: Mapping[str, Any], machine: Machine) -> Memory:
    fits = machine.smallest_bytes >> 21
    return Memory(COPIES * values["mebibytes"] * 2**20, f"use mebibytes ≤ {fits:,}")


PRESET = Preset(
    name="transfer",
    summary="worker-to-worker latency and bandwidth of every pair, and which way arrays take",
    parameters=(
        Parameter("mebibytes", int, 1024, "of the largest buffer", 32, minimum=1, unit="MiB"),
        Parameter("most", int, 8, "how many workers to pair", minimum=2, maximum=128),
    ),
    compute=compute,
    estimate=_estimate,
    units={
        "slowest_bytes_per_s": "B/s",
        "fastest_bytes_per_s": "B/s",
        "64_KiB_s": "s",
        "16_MiB_bytes_per_s": "B/s",
        "largest_bytes_per_s": "B/s",
        "hardware_bytes_per_s": "B/s",
    },
    draws=True,
)
