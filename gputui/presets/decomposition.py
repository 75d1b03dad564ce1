"""Three ways to decompose a tall matrix on the workers, and the check of what they found.

A matrix is a Dask array in one column of chunks (tsqr, randomized), or parts that are iterables
of blocks (gram); here they are those of the preset `svd`, but need not be. Arrays that are small
(s, vᵀ) come back to this process in host memory; u stays on the workers.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from gputui.presets import Job, module_of, to_host
from gputui.presets import cholesky_qr as qr
from gputui.presets.random_streams import Rows, draw

POWER_ITERATIONS = 3
OVERSAMPLING = 10
FEWEST_PASSES, MOST_PASSES = 2, 5
FAN_IN = 4
"""Triangles that one task adds up."""


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
    errors: Any = None
    """(k,) ‖x v − s u‖ of each estimate: a singular value of x lies within that of s."""


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
    u = q @ small_u
    rest = x @ vt.T - u * s
    both = da.concatenate([s[:k], da.sqrt((rest * rest).sum(axis=0))[:k]])
    if not vectors:
        both = job.compute(_local(both), "randomized")
        return Decomposition(both[:k], method="randomized", errors=both[k:])
    u, vt, both = job.persist((u, vt, both), "randomized")
    both, vt = job.compute(_local(both)), job.compute(_local(vt))
    return Decomposition(both[:k], u[:, :k], vt[:k], "randomized", errors=both[k:])


def _projected(block: Any, seed: int, width: int) -> Any:
    """Return the block times a matrix of normal numbers, the same for every block."""
    import numpy as np

    omega = np.random.default_rng(seed).standard_normal((block.shape[1], width))
    return block @ module_of(block).asarray(omega)


def decompose_gram(
    job: Job,
    parts: Sequence[Iterable[Any]],
    heights: Sequence[Sequence[int]],
    vectors: bool,
    keep: bool = False,
) -> Decomposition | None:
    """Decompose the matrix that the parts make up; None where orthogonality is out of reach.

    A part is any iterable of blocks (m, n); one task iterates it in each pass or, with `keep`,
    once: then the blocks stay on their worker. `heights` are the rows of each block of each part.
    A pass waits for a few numbers from every worker, so all passes go to the scheduler at once.
    """
    from dask.delayed import delayed
    from distributed import futures_of

    rows = sum(map(sum, heights))
    held = [delayed(tuple)(part) if keep else delayed(part) for part in parts]
    factors: list[Any] = []
    for passes in range(FEWEST_PASSES, MOST_PASSES + 1):
        while len(factors) < passes:
            factors.append(_next_factor(held, factors, rows, job.backend))
        end = delayed(qr.conclude)(factors, vectors, job.backend)
        stage = f"passes 1 to {passes}" if passes == FEWEST_PASSES else f"pass {passes}"
        *kept, end, answer = job.persist([*held, *factors, end, end.answer()], stage)
        held, factors = kept[: len(held)], kept[len(held) :]
        final, s, vt = futures_of(answer)[0].result()
        if final:
            u = _left(job, held, heights, factors, end, len(s)) if vectors else None
            return Decomposition(s, u, vt, "gram", passes)
    return None


def _next_factor(parts: list[Any], factors: list[Any], rows: int, backend: str) -> Any:
    """Return the next pass's factor, lazily: a task for each part, and a tree of sums."""
    from dask.delayed import delayed

    sums = [delayed(qr.gram)(part, list(factors)) for part in parts]
    while len(sums) > FAN_IN:
        groups = [sums[i : i + FAN_IN] for i in range(0, len(sums), FAN_IN)]
        sums = [delayed(qr.add)(group) for group in groups]
    return delayed(qr.factor)(sums, rows, list(factors), backend)


def _left(
    job: Job,
    parts: list[Any],
    heights: Sequence[Sequence[int]],
    factors: list[Any],
    end: Any,
    n: int,
) -> Any:
    """Return u as a Dask array of blocks that stay on their workers."""
    import dask.array as da
    import numpy as np
    from dask.delayed import delayed

    lefts = [delayed(qr.left_vectors)(part, factors, end) for part in parts]
    arrays = [
        da.from_delayed(left[index], (height, n), dtype="float64", meta=np.empty((0, 0)))
        for left, part in zip(job.persist(lefts, "left vectors"), heights, strict=True)
        for index, height in enumerate(part)
    ]
    return da.concatenate(arrays, axis=0)


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


def _local(array: Any) -> Any:
    """Return the array with chunks in host memory, for a process that has no CuPy."""
    return array.map_blocks(to_host, dtype=array.dtype)


def check(job: Job, x: Blocks, found: Decomposition) -> dict[str, float]:
    """Return ‖x − u s vᵀ‖ / ‖x‖ and ‖uᵀu − I‖, both in the Frobenius norm."""
    import numpy as np
    from dask import delayed

    s, vt = delayed(found.s), delayed(found.vt)
    pairs = zip(_ranges(found.u.chunks[0]), found.u.to_delayed().ravel(), strict=True)
    lazy = [delayed(_deviations)(x, rows, block, s, vt) for rows, block in pairs]
    parts = job.results(job.client.compute(lazy, **job.placement()), "checking")
    identity = np.eye(len(found.s))
    return {
        "residual": math.sqrt(sum(p[0] for p in parts) / sum(p[1] for p in parts)),
        "orthogonality": float(np.linalg.norm(sum(p[2] for p in parts) - identity)),
    }


def _deviations(x: Blocks, rows: Rows, u: Any, s: Any, vt: Any) -> tuple[float, float, Any]:
    """Return ‖x − u s vᵀ‖², ‖x‖² and uᵀu of one block, which is drawn where its u is."""
    block = draw_rows(x, rows)
    xp = module_of(block)
    u = xp.asarray(u)
    rest = block - (u * xp.asarray(s)) @ xp.asarray(vt)
    return float((rest * rest).sum()), float((block * block).sum()), to_host(u.T @ u)


def _ranges(heights: Sequence[int]) -> tuple[Rows, ...]:
    stops = list(accumulate(heights))
    return tuple(zip([0, *stops[:-1]], stops, strict=True))
