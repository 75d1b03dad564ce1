"""Singular value decomposition of a tall-skinny matrix, uniform in [0, 1), over all workers.

The data are `numpy.random.default_rng(seed).random((rows, cols))`, whatever the workers and the
chunks. Methods: `tsqr` is Dask's `da.linalg.svd`; `gram` is repeated Cholesky-QR on a few large
blocks (see `cholesky_qr.py`), which falls back to tsqr where it does not reach orthogonal
vectors; `randomized` finds the first `k` only by random projection; `auto` takes gram.
A matrix with more columns than rows is decomposed as the transpose of a tall one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

from gputui.errors import PresetError, RunError
from gputui.presets import Figure, Machine, Memory, Outcome, Parameter, Preset
from gputui.presets import cholesky_qr as qr
from gputui.presets.job import Job
from gputui.presets.streams import Rows, draw

BLOCK_BYTES = 2**29
"""Of one block on a GPU: large enough for its matrix products to run at full speed."""
CPU_BLOCK_BYTES = 2**25
TSQR_CHUNK_BYTES = 2**31
"""Of a chunk on a GPU; cuSOLVER counts the numbers of a matrix in 32 bits."""
POWER_ITERATIONS = 3
OVERSAMPLING = 10
MOST_PASSES = 5
FAN_IN = 4
"""Triangles that one task adds up."""
HELD_SHARE = 0.5
"""Of the smallest device: up to which drawn blocks are kept there between passes."""


@dataclass(frozen=True, slots=True)
class Blocks:
    """Rows of the matrix that one task works on, drawn block by block whenever iterated."""

    backend: str
    source: str
    seed: int
    cols: int
    dtype: str
    ranges: tuple[Rows, ...]

    def __iter__(self) -> Any:
        return (draw_rows(self, rows) for rows in self.ranges)


@dataclass(frozen=True, slots=True)
class Decomposition:
    """u · diag(s) · vᵀ."""

    s: Any
    """(k,) float64, descending, in host memory."""
    u: Any = None
    """(rows, k) Dask array on the workers; None where only singular values were asked for."""
    vt: Any = None
    """(k, cols) in host memory, or a Dask array."""
    method: str = ""
    passes: int | None = None


def compute(job: Job) -> Outcome:
    """Decompose, check where asked, and report the largest singular values."""
    tall, wide = _shape(job.parameters)
    wanted = job["vectors"] or job["check"] or job.keep_arrays
    chunk_rows = _chunk_rows(job.parameters, job.machine)
    x = Blocks(job.backend, job["source"], job["seed"], wide, job["dtype"], _cut(tall, chunk_rows))
    found = _decompose(job, x, wanted)
    if not math.isfinite(float(found.s[0])):
        raise RunError("the matrix holds NaN or inf", remedy="drop or replace such rows first")
    result = {
        "singular_values": [float(value) for value in found.s[: job["top"]]],
        "condition": float(found.s[0] / found.s[-1]) if found.s[-1] > 0 else None,
        "method": found.method,
    }
    if found.passes is not None:
        result["passes"] = found.passes
    if job["check"]:
        result |= check(job, x, found)
    return Outcome(result, _figure(found.s), _arrays(job, found) if wanted else {})


def _decompose(job: Job, x: Blocks, vectors: bool) -> Decomposition:
    if job["method"] == "randomized":
        return decompose_randomized(job, dask_array(x), job["k"], vectors)
    if job["method"] == "tsqr":
        return decompose_tsqr(job, dask_array(x), vectors)
    parts = _parts(x, job.machine.threads)
    heights = [[stop - start for start, stop in part.ranges] for part in parts]
    held = job.map(tuple, parts) if _fits(job) else parts
    found = decompose_gram(job, held, heights, vectors)
    return found or decompose_tsqr(job, dask_array(x), vectors)


def _fits(job: Job) -> bool:
    """Whether a drawn part may stay on its device between the passes, beside u."""
    tall, wide = _shape(job.parameters)
    part_bytes = 8 * wide * math.ceil(tall / job.machine.threads)
    return part_bytes <= HELD_SHARE / 2 * job.machine.smallest_bytes


def decompose_tsqr(job: Job, x: Any, vectors: bool) -> Decomposition:
    """Decompose x, a Dask array (m, n) in one column of chunks, by Dask's TSQR."""
    import dask.array as da

    u, s, vt = da.linalg.svd(x)
    if not vectors:
        return Decomposition(job.compute(_local(s)), method="tsqr")
    u, s, vt = job.persist((u, s, vt), "tsqr")
    return Decomposition(job.compute(_local(s)), u, job.compute(_local(vt)), "tsqr")


def decompose_randomized(job: Job, x: Any, k: int, vectors: bool) -> Decomposition:
    """Return the first k of x, a Dask array (m, n) in one column of chunks.

    As Dask's `svd_compressed` does with TSQR and `POWER_ITERATIONS`, but with a projection that
    is drawn where the chunks are, so that this process needs no CuPy.

    Source: N. Halko, P.-G. Martinsson, J. A. Tropp, "Finding structure with randomness", 2011.
    """
    import dask.array as da

    width = min(k + OVERSAMPLING, x.shape[1])
    chunks = (x.chunks[0], (width,))
    y = x.map_blocks(_projected, job["seed"], width, chunks=chunks, dtype="f8", meta=x._meta)
    for _ in range(POWER_ITERATIONS):
        q, _ = da.linalg.tsqr(y)
        z, _ = da.linalg.tsqr((q.T @ x).rechunk((width, x.shape[1])).T)
        y = x @ z
    q, _ = da.linalg.tsqr(y)
    small_u, s, vt = da.linalg.svd((q.T @ x).rechunk((width, x.shape[1])))
    if not vectors:
        return Decomposition(job.compute(_local(s))[:k], method="randomized")
    u, s, vt = job.persist((q @ small_u, s, vt), "randomized")
    s, vt = job.compute(_local(s)), job.compute(_local(vt))
    return Decomposition(s[:k], u[:, :k], vt[:k], method="randomized")


def _projected(block: Any, seed: int, width: int) -> Any:
    """Return the block times a matrix of normal numbers, the same for every block."""
    import numpy as np

    omega = np.random.default_rng(seed).standard_normal((block.shape[1], width))
    return block @ qr.module_of(block).asarray(omega)


def decompose_gram(
    job: Job, parts: Sequence[Iterable[Any]], heights: Sequence[Sequence[int]], vectors: bool
) -> Decomposition | None:
    """Decompose the matrix that the parts make up; None where orthogonality is out of reach.

    A part is any iterable of blocks (m, n), or a future of one: one task iterates it in each
    pass. `heights` are the rows of each block of each part.
    """
    rows = sum(map(sum, heights))
    factors = [_next_factor(job, parts, [], rows)]
    factors.append(_next_factor(job, parts, factors, rows))
    while True:
        small = job.submit(qr.small_svd, list(factors), vectors, job.backend == "cupy")
        final = job.submit(_is_final, factors[-1])
        job.wait([small, final], f"pass {len(factors)}")
        if final.result():
            break
        if len(factors) == MOST_PASSES:
            return None
        factors.append(_next_factor(job, parts, factors, rows))
    small_u, s, vt = small.result()
    u = _left(job, parts, heights, factors, small_u) if vectors else None
    return Decomposition(s, u, vt, "gram", len(factors))


def _next_factor(job: Job, parts: Sequence[Any], factors: list[Any], rows: int) -> Any:
    """Return the future of the next pass's factor: a task for each part, and a tree of sums."""
    sums = job.map(qr.gram, parts, [list(factors)] * len(parts))
    while len(sums) > 1:
        groups = [sums[i : i + FAN_IN] for i in range(0, len(sums), FAN_IN)]
        sums = [job.submit(qr.add, group) if len(group) > 1 else group[0] for group in groups]
    return job.submit(qr.factor, sums[0], rows, not factors, job.backend == "cupy")


def _is_final(factor: qr.Factor) -> bool:
    return factor.final


def _left(
    job: Job,
    parts: Sequence[Any],
    heights: Sequence[Sequence[int]],
    factors: list[Any],
    small_u: Any,
) -> Any:
    """Return u as a Dask array of blocks that stay on their workers."""
    import dask.array as da
    import numpy as np
    from dask.delayed import Delayed, delayed

    turned = job.client.scatter(small_u)
    n = small_u.shape[1]
    futures = job.map(qr.left_vectors, parts, [list(factors)] * len(parts), [turned] * len(parts))
    job.wait(futures, "left vectors")
    blocks: list[Delayed] = []
    for future, part in zip(futures, heights, strict=True):
        blocks.extend(delayed(_item)(future, index) for index in range(len(part)))
    shapes = [(height, n) for part in heights for height in part]
    arrays = [
        da.from_delayed(block, shape, dtype="float64", meta=np.empty((0, 0)))
        for block, shape in zip(blocks, shapes, strict=True)
    ]
    return da.concatenate(arrays, axis=0)


def _item(blocks: tuple[Any, ...], index: int) -> Any:
    return blocks[index]


def dask_array(x: Blocks) -> Any:
    """Return x as a lazy Dask array, one chunk a block."""
    import dask.array as da
    import numpy as np

    heights = tuple(stop - start for start, stop in x.ranges)
    return da.map_blocks(
        _chunk, x, chunks=(heights, (x.cols,)), dtype=x.dtype, meta=np.empty((0, 0), x.dtype)
    )


def _chunk(x: Blocks, block_info: Any = None) -> Any:
    return draw_rows(x, block_info[None]["array-location"][0])


def draw_rows(x: Blocks, rows: Rows) -> Any:
    """Return rows of the matrix; drawn on the device, or by NumPy and moved there."""
    if x.source == "numpy" and x.backend == "cupy":
        import cupy

        return cupy.asarray(draw("numpy", x.seed, x.cols, rows, x.dtype))
    return draw(x.backend, x.seed, x.cols, rows, x.dtype)


def _host(block: Any) -> Any:
    return block.get() if hasattr(block, "get") else block


def _local(array: Any) -> Any:
    """Return the array with chunks in host memory, for a process that has no CuPy."""
    return array.map_blocks(_host, dtype=array.dtype)


def check(job: Job, x: Blocks, found: Decomposition) -> dict[str, float]:
    """Return ‖x − u s vᵀ‖ / ‖x‖ and ‖uᵀu − I‖, both in the Frobenius norm."""
    import numpy as np
    from dask import delayed

    s, vt = delayed(found.s), delayed(found.vt)
    lazy = dask_array(replace(x, ranges=_ranges(found.u.chunks[0])))
    pairs = zip(lazy.to_delayed().ravel(), found.u.to_delayed().ravel(), strict=True)
    futures = job.client.compute([delayed(_deviations)(xb, ub, s, vt) for xb, ub in pairs])
    parts = job.results(futures, "checking")
    identity = np.eye(len(found.s))
    return {
        "residual": math.sqrt(sum(p[0] for p in parts) / sum(p[1] for p in parts)),
        "orthogonality": float(np.linalg.norm(sum(p[2] for p in parts) - identity)),
    }


def _deviations(x: Any, u: Any, s: Any, vt: Any) -> tuple[float, float, Any]:
    """Return ‖x − u s vᵀ‖², ‖x‖² and uᵀu of one block."""
    xp = qr.module_of(x)
    u = xp.asarray(u)
    rest = x - (u * xp.asarray(s)) @ xp.asarray(vt)
    return float((rest * rest).sum()), float((x * x).sum()), _host(u.T @ u)


def _cut(rows: int, height: int) -> tuple[Rows, ...]:
    return tuple((start, min(start + height, rows)) for start in range(0, rows, height))


def _ranges(heights: Sequence[int]) -> tuple[Rows, ...]:
    stops = list(accumulate(heights))
    return tuple(zip([0, *stops[:-1]], stops, strict=True))


def _parts(x: Blocks, count: int) -> list[Blocks]:
    """Share the blocks out as `count` runs of nearly one length."""
    per_part = math.ceil(len(x.ranges) / count)
    starts = range(0, len(x.ranges), per_part)
    return [replace(x, ranges=x.ranges[i : i + per_part]) for i in starts]


def _chunk_rows(values: Mapping[str, Any], machine: Machine) -> int:
    """Return the rows of a block: those asked for, or what suits the method and the machine."""
    tall, wide = _shape(values)
    if values["chunk_rows"]:
        return int(min(values["chunk_rows"], tall))
    share = math.ceil(tall / machine.threads)
    if values["method"] in ("tsqr", "randomized"):
        return min(tall, max(wide, min(share, TSQR_CHUNK_BYTES // (8 * wide))))
    size = BLOCK_BYTES if machine.backend == "cupy" else CPU_BLOCK_BYTES
    return max(1, min(share, max(size // (8 * wide), wide)))


def _shape(values: Mapping[str, Any]) -> tuple[int, int]:
    return max(values["rows"], values["cols"]), min(values["rows"], values["cols"])


def _estimate(values: Mapping[str, Any], machine: Machine) -> Memory:
    """Return the peak on one worker: blocks in work, what is kept, and n × n matrices."""
    tall, wide = _shape(values)
    row = 8 * wide
    square = 8 * row * wide
    kept = row * math.ceil(tall / machine.threads) * (1 if values["vectors"] else 0)
    copies = 4
    if values["method"] in ("tsqr", "randomized"):
        kept = 2 * row * math.ceil(tall / machine.threads)
    rest = machine.smallest_bytes - kept - square
    fits = max(rest, 0) // (copies * row)
    change = f"use chunk_rows ≤ {fits:,}" if fits >= 1 else "use fewer rows or more workers"
    return Memory(copies * row * _chunk_rows(values, machine) + kept + square, change)


def _check(values: Mapping[str, Any]) -> None:
    k, most = values["k"], min(values["rows"], values["cols"])
    if values["method"] == "randomized" and k > most:
        raise PresetError(f"svd: k={k}: must be at most the smaller of rows and cols, {most:,}")


def _arrays(job: Job, found: Decomposition) -> dict[str, Any]:
    v = found.vt.T
    if job["rows"] >= job["cols"]:
        return {"u": found.u, "s": found.s, "v": v}
    return {"u": v, "s": found.s, "v": found.u}


def _figure(s: Any) -> Figure:
    shown = [float(value) for value in s[:: max(1, len(s) // 500)]]
    return Figure(
        kind="line",
        title="singular values",
        x_label="index",
        x=tuple(float(i) for i in range(0, len(s), max(1, len(s) // 500))),
        y=tuple(shown),
        logarithmic=True,
    )


PRESET = Preset(
    name="svd",
    summary="singular values (and vectors) of a tall-skinny matrix",
    parameters=(
        Parameter("rows", int, 10_000, "rows of x", minimum=1, unit="rows"),
        Parameter("cols", int, 1_000, "columns of x", minimum=1, unit="columns"),
        Parameter("chunk_rows", int, None, "rows of a block", minimum=1, unit="rows"),
        Parameter(
            "method",
            str,
            "auto",
            "auto takes gram, and tsqr where gram does not reach orthogonal vectors",
            choices=("auto", "tsqr", "gram", "randomized"),
        ),
        Parameter("k", int, 10, "how many, for method=randomized", minimum=1),
        Parameter("dtype", str, "float64", "of x", choices=("float64", "float32")),
        Parameter("seed", int, 0, "of x", minimum=0, maximum=2**63 - 1),
        Parameter(
            "source",
            str,
            "device",
            "where x is drawn before it is moved to the device",
            choices=("device", "numpy"),
        ),
        Parameter("top", int, 10, "how many singular values to report", minimum=1),
        Parameter("vectors", bool, False, "also compute u and v, and keep u on the workers"),
        Parameter("check", bool, False, "also report the residual and the orthogonality of u"),
    ),
    compute=compute,
    estimate=_estimate,
    check=_check,
)
