"""A blocked matrix product, and the rate it sustains against the card's own.

c = a · b of square uniform matrices, one task for each block of c: it draws the rows of a and
the columns of b that it needs and multiplies them. Each block is checked as it is made, by
Freivalds' test: c v against a (b v) for a random vector v. `flops_per_s` is 2 n³ over the time from
the first task to the last: drawing, checking and Dask's own part count as time, not as operations.
The card's own rate is that of the same library's product of resident blocks, and nothing else.
"""

import math
import time
from collections.abc import Mapping
from functools import partial
from itertools import product
from typing import Any

from gputui.errors import RunError
from gputui.presets import Job, Machine, Memory, Outcome, Parameter, Preset
from gputui.presets.job import finish
from gputui.presets.random_streams import Rows, draw

# How long the card's own rate is measured: clocks fall under a load that lasts, within a second
# from 57 to 54 TFLOP/s of float64 on an H200.
SUSTAINED_S = 2.0
OWN_BLOCK = 8_192
WARM = 64  # side of a first product, which compiles and loads the kernels
TOLERANCE = {"float64": 1e-12, "float32": 1e-4}


def compute(job: Job) -> Outcome:
    """Measure the card's own rate, then multiply block by block."""
    size, dtype = job["size"], job["dtype"]
    block = _block(job.parameters, job.machine)
    spans = [(start, min(start + block, size)) for start in range(0, size, block)]
    blocks = list(product(spans, spans))
    each = partial(multiply, job.backend, job["seed"], size, dtype)
    arguments = (job.backend, min(block, OWN_BLOCK), dtype)
    own = max(job.each_worker(own_rate, *arguments, stage="its own rate"))
    started = time.perf_counter()
    deviations = job.results(job.map(each, *zip(*blocks, strict=True)), "multiplying")
    elapsed_s = time.perf_counter() - started
    if not max(deviations) < TOLERANCE[dtype]:
        raise RunError(f"a block of the product is off by {max(deviations):.1e} (relative)")
    rate = 2.0 * size**3 / elapsed_s
    busy = min(len(job.workers), len(blocks))
    return Outcome(
        {
            "flops_per_s": rate,
            "flops_per_s_each": rate / busy,
            "own_flops_per_s": own,
            "share_of_own": rate / busy / own,
            "elapsed_s": elapsed_s,
            "elapsed_in": "drawing a and b, multiplying, checking c",
            "deviation": max(deviations),
            "blocks": len(blocks),
        }
    )


def multiply(backend: str, seed: int, size: int, dtype: str, rows: Rows, columns: Rows) -> float:
    """Compute one block of c and return how far Freivalds' test is off, relative."""
    a = draw(backend, seed, size, rows, dtype)
    b = draw(backend, seed + 1, size, (0, size), dtype, columns)
    c = a @ b
    v = draw(backend, seed + 2, columns[1] - columns[0], (0, 1), dtype)[0]
    expected = a @ (b @ v)
    return float(abs(c @ v - expected).max() / abs(expected).max())


def own_rate(backend: str, block: int, dtype: str) -> float:
    """Return the FLOP/s of the product of two resident blocks on this worker."""
    multiply(backend, 0, WARM, dtype, (0, WARM), (0, WARM))
    a = draw(backend, 0, block, (0, block), dtype)
    a @ a
    finish(backend)
    started, products = time.perf_counter(), 0
    while (elapsed_s := time.perf_counter() - started) < SUSTAINED_S:
        a @ a
        finish(backend)
        products += 1
    return products * 2.0 * block**3 / elapsed_s


def _block(values: Mapping[str, Any], machine: Machine) -> int:
    """Return the side of a block: two or more blocks a worker, and as many for each of them."""
    size = int(values["size"])
    return min(int(values["block"] or math.ceil(size / blocks_a_side(machine.workers))), size)


def blocks_a_side(workers: int) -> int:
    """Return how many blocks a side keep workers busy to the end, the fewest of those.

    >>> [blocks_a_side(workers) for workers in (1, 2, 4, 5, 8)]
    [2, 2, 4, 5, 4]
    """
    fewest = math.ceil(math.sqrt(2 * workers))
    sides = range(fewest, 2 * fewest + 1)
    return max(sides, key=lambda n: round(n**2 / (math.ceil(n**2 / workers) * workers), 1))


def _estimate(values: Mapping[str, Any], machine: Machine) -> Memory:
    item, size = (8 if values["dtype"] == "float64" else 4), values["size"]
    block = _block(values, machine)
    # NumPy draws float64 and then rounds.
    rounds = machine.backend == "numpy" and item == 4
    fits = machine.smallest_bytes // ((2 * item + (8 if rounds else item)) * size)
    change = f"use block ≤ {fits:,}" if fits else "use a smaller size"
    return Memory(block * (2 * item * size + (8 * size if rounds else item * block)), change)


PRESET = Preset(
    name="matmul",
    summary="sustained rate of a blocked matrix product, against the card's own",
    parameters=(
        Parameter("size", int, 32_768, "side of the matrices", 2_048, minimum=1, maximum=10**6),
        Parameter("block", int, None, "side of a block; auto is two or more a worker", minimum=1),
        Parameter("dtype", str, "float64", "of a, b and c", choices=("float64", "float32")),
        Parameter("seed", int, 0, "of a; b has the next one", minimum=0, maximum=2**62),
    ),
    compute=compute,
    estimate=_estimate,
    units={
        **dict.fromkeys(("flops_per_s", "flops_per_s_each", "own_flops_per_s"), "FLOP/s"),
        "elapsed_s": "s",
    },
)
