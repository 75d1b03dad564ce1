"""Singular value decomposition of a tall-skinny matrix, uniform in [0, 1), over all workers.

The data are `numpy.random.default_rng(seed).random((rows, cols))`, whatever the workers and the
chunks. Methods: `tsqr` is Dask's `da.linalg.svd`; `gram` is repeated Cholesky-QR (the tasks of
`cholesky_qr.py`) on a few large blocks, left for tsqr where it does not reach orthogonal vectors;
`auto` takes gram.
A matrix with more columns than rows is decomposed as the transpose of a tall one.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from gputui.model.frozen import frozen
from gputui.presets import (
    Figure,
    Job,
    Machine,
    Memory,
    Outcome,
    Parameter,
    Preset,
    array_module,
    module_of,
    refuse_too_many,
    to_host,
)
from gputui.presets import cholesky_qr as qr
from gputui.presets.random_streams import Rows, draw

BLOCK_BYTES = {"cupy": 2**29, "numpy": 2**25}  # large enough for products at full speed
TSQR_CHUNK_BYTES = 2**31  # on a GPU: cuSOLVER counts the numbers of a matrix in 32 bits
KEPT_SHARE = 0.25  # of the smallest device: up to which drawn blocks stay there between passes
PASSES = 2  # of gram
FAN_IN = 4  # triangles that one task adds up


@frozen
class Blocks:
    """Rows of the matrix that one task works on, drawn block by block whenever iterated."""

    backend: str
    source: str
    seed: int
    cols: int
    dtype: str
    ranges: tuple[Rows, ...]

    def __iter__(self) -> Iterator[Any]:
        return map(self.draw, self.ranges)

    def draw(self, rows: Rows) -> Any:
        """Return rows of the matrix; drawn on the device, or by NumPy and moved there."""
        drawn_by = "numpy" if self.source == "numpy" else self.backend
        drawn = draw(drawn_by, self.seed, self.cols, rows, self.dtype)
        return drawn if drawn_by == self.backend else array_module(self.backend).asarray(drawn)

    @property
    def heights(self) -> tuple[int, ...]:
        """The rows of each block."""
        return tuple(stop - start for start, stop in self.ranges)


@frozen
class Decomposition:
    """u · diag(s) · vᵀ; u and vᵀ are None where only singular values were asked for.

    s is (k,) float64, descending, in host memory; u a (rows, k) Dask array on the workers; vt is
    (k, cols) in host memory.
    """

    s: Any
    u: Any = None
    vt: Any = None
    method: str = ""


def compute(job: Job) -> Outcome:
    """Decompose, check where asked, and report the largest singular values."""
    tall, wide = _shape(job.parameters)
    vectors = job["vectors"] or job["check"] or job.keep_arrays
    height = _chunk_rows(job.parameters, job.machine)
    cut = tuple((start, min(start + height, tall)) for start in range(0, tall, height))
    x = Blocks(job.backend, job["source"], job["seed"], wide, job["dtype"], cut)
    found = _decompose(job, x, vectors)
    s = found.s
    result = {
        "singular_values": [float(value) for value in s[: job["top"]]],
        "condition": float(s[0] / s[-1]) if s[-1] > 0 else None,
        "method": found.method,
    }
    if job["check"]:
        result |= _check_vectors(job, x, found)
    step = max(1, len(s) // 500)
    figure = Figure(
        "line",
        "singular values",
        "σ",
        "index",
        x=tuple(map(float, range(0, len(s), step))),
        y=tuple(map(float, s[::step])),
        logarithmic=True,
    )
    if not vectors:
        return Outcome(result, figure)
    u, v = (found.u, found.vt.T) if job["rows"] >= job["cols"] else (found.vt.T, found.u)
    return Outcome(result, figure, {"u": u, "s": s, "v": v})


def _decompose(job: Job, x: Blocks, vectors: bool) -> Decomposition:
    found = None
    if job["method"] != "tsqr":
        per_part = math.ceil(len(x.ranges) / job.machine.threads)
        starts = range(0, len(x.ranges), per_part)
        parts = [replace(x, ranges=x.ranges[i : i + per_part]) for i in starts]
        keep = _part_bytes(job.parameters, job.machine) <= KEPT_SHARE * job.machine.smallest_bytes
        found = decompose_gram(job, parts, [part.heights for part in parts], vectors, keep)
    return found or decompose_tsqr(job, _dask_array(x), vectors)


def decompose_tsqr(job: Job, x: Any, vectors: bool) -> Decomposition:
    """Decompose x, a Dask array (m, n) in one column of chunks, by Dask's TSQR."""
    import dask.array as da

    u, s, vt = da.linalg.svd(x)
    if not vectors:
        return Decomposition(job.compute(_local(s)), method="tsqr")
    u, s, vt = job.persist((u, s, vt), "tsqr")
    return Decomposition(job.compute(_local(s)), u, job.compute(_local(vt)), "tsqr")


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
    Each pass waits for a few numbers from every worker, so both go to the scheduler at once.
    """
    import dask.array as da
    import numpy as np
    from dask.delayed import delayed
    from distributed import futures_of

    held = [delayed(tuple)(part) if keep else delayed(part) for part in parts]
    factors: list[Any] = []
    for _ in range(PASSES):
        sums = [delayed(qr.gram)(part, list(factors)) for part in held]
        while len(sums) > FAN_IN:
            groups = [sums[i : i + FAN_IN] for i in range(0, len(sums), FAN_IN)]
            sums = [delayed(qr.add)(group) for group in groups]
        factors.append(delayed(qr.factor)(sums, job.backend))
    end = delayed(qr.conclude)(factors, vectors, job.backend)
    *kept, end, answer = job.persist([*held, *factors, end, end[1]], "two passes")
    held, factors = kept[: len(held)], kept[len(held) :]
    s, vt = futures_of(answer)[0].result()
    if s is None or not vectors:
        return None if s is None else Decomposition(s, None, vt, "gram")
    lefts = [delayed(qr.left_vectors)(part, factors, end) for part in held]
    blocks = [
        da.from_delayed(left[at], (height, len(s)), dtype="float64", meta=np.empty((0, 0)))
        for left, part in zip(job.persist(lefts, "left vectors"), heights, strict=True)
        for at, height in enumerate(part)
    ]
    return Decomposition(s, da.concatenate(blocks, axis=0), vt, "gram")


def _dask_array(x: Blocks) -> Any:
    """Return x as a lazy Dask array, one chunk a block."""
    import dask.array as da
    import numpy as np

    chunks, meta = (x.heights, (x.cols,)), np.empty((0, 0), x.dtype)
    return da.map_blocks(_chunk, x, chunks=chunks, dtype=x.dtype, meta=meta)


def _chunk(x: Blocks, block_info: Any = None) -> Any:
    return x.draw(block_info[None]["array-location"][0])


def _local(array: Any) -> Any:
    """Return the array with chunks in host memory, for a process that has no CuPy."""
    return array.map_blocks(to_host, dtype=array.dtype)


def _check_vectors(job: Job, x: Blocks, found: Decomposition) -> dict[str, float]:
    """Return ‖x − u s vᵀ‖ / ‖x‖ and ‖uᵀu − I‖, both in the Frobenius norm."""
    import numpy as np
    from dask import delayed

    s, vt = delayed(found.s), delayed(found.vt)
    pairs = zip(x.ranges, found.u.to_delayed().ravel(), strict=True)
    lazy = [delayed(_deviations)(x, rows, block, s, vt) for rows, block in pairs]
    parts = job.results(job.client.compute(lazy, **job.placement()), "checking")
    rests, squares, products = zip(*parts, strict=True)
    return {
        "residual": math.sqrt(sum(rests) / sum(squares)),
        "orthogonality": float(np.linalg.norm(sum(products) - np.eye(len(found.s)))),
    }


def _deviations(x: Blocks, rows: Rows, u: Any, s: Any, vt: Any) -> tuple[float, float, Any]:
    """Return ‖x − u s vᵀ‖², ‖x‖² and uᵀu of one block, which is drawn where its u is."""
    block = x.draw(rows)
    xp = module_of(block)
    u = xp.asarray(u)
    rest = block - (u * xp.asarray(s)) @ xp.asarray(vt)
    return float((rest * rest).sum()), float((block * block).sum()), to_host(u.T @ u)


def _shape(values: Mapping[str, Any]) -> tuple[int, int]:
    return max(values["rows"], values["cols"]), min(values["rows"], values["cols"])


def _part_bytes(values: Mapping[str, Any], machine: Machine) -> int:
    """Return the bytes of the rows that one thread works on."""
    tall, wide = _shape(values)
    return 8 * wide * math.ceil(tall / machine.threads)


def _chunk_rows(values: Mapping[str, Any], machine: Machine) -> int:
    """Return the rows of a block: those asked for, or what suits the method and the machine."""
    tall, wide = _shape(values)
    if values["chunk_rows"]:
        return int(min(values["chunk_rows"], tall))
    share = math.ceil(tall / machine.threads)
    if values["method"] == "tsqr":
        return min(tall, max(wide, min(share, TSQR_CHUNK_BYTES // (8 * wide))))
    return max(1, min(share, max(BLOCK_BYTES[machine.backend] // (8 * wide), wide)))


def _estimate(values: Mapping[str, Any], machine: Machine) -> Memory:
    """Return the peak on one worker: blocks in use, kept results, and n × n matrices."""
    wide = _shape(values)[1]
    row, square = 8 * wide, 64 * wide**2
    wants_u = values["vectors"] or values["check"] or machine.keeps_arrays
    share = _part_bytes(values, machine)
    kept = share * ((share <= KEPT_SHARE * machine.smallest_bytes) + bool(wants_u))
    copies = 2  # of a block: what is read, and what is made of it
    if values["method"] == "tsqr":
        kept, copies = share * (2 if wants_u else 1), 4
    fits = max(machine.smallest_bytes - kept - square, 0) // (copies * row)
    change = f"use chunk_rows ≤ {fits:,}" if fits >= 1 else "use fewer rows or more workers"
    return Memory(copies * row * _chunk_rows(values, machine) + kept + square, change)


PRESET = Preset(
    name="svd",
    summary="singular values (and vectors) of a tall-skinny matrix",
    parameters=(
        Parameter("rows", int, 10_000, "rows of the matrix", minimum=1, unit="rows"),
        Parameter("cols", int, 1_000, "columns of the matrix", minimum=1, unit="columns"),
        Parameter(
            "chunk_rows",
            int,
            None,
            "rows of a block; auto suits the machine",
            minimum=1,
            unit="rows",
        ),
        Parameter(
            "method",
            str,
            "auto",
            "auto takes gram, and tsqr where gram does not reach orthogonal vectors",
            choices=("auto", "tsqr", "gram"),
        ),
        Parameter("dtype", str, "float64", "of the matrix", choices=("float64", "float32")),
        Parameter("seed", int, 0, "of the matrix", minimum=0, maximum=2**63 - 1),
        Parameter(
            "source",
            str,
            "device",
            "where the matrix is drawn before it is moved to the device",
            choices=("device", "numpy"),
        ),
        Parameter("top", int, 10, "how many singular values to report", minimum=1),
        Parameter("vectors", bool, False, "also compute u and v, and keep u on the workers"),
        Parameter("check", bool, False, "also report the residual and the orthogonality of u"),
    ),
    compute=compute,
    estimate=_estimate,
    check=partial(refuse_too_many, "svd"),
    arrays=("u", "s", "v"),
    draws=True,
)
