"""Singular value decomposition of a tall-skinny matrix, uniform in [0, 1), over all workers.

The data are `numpy.random.default_rng(seed).random((rows, cols))`, whatever the workers and the
chunks. Methods (in `decomposition.py`): `tsqr` is Dask's `da.linalg.svd`; `gram` is repeated
Cholesky-QR on a few large blocks, left for tsqr where it does not reach orthogonal vectors;
`randomized` estimates the first `k` only, by random projection, each with its error: a singular
value of the matrix lies within that of it; `auto` takes gram.
A matrix with more columns than rows is decomposed as the transpose of a tall one.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gputui.errors import PresetError, RunError
from gputui.presets import Figure, Job, Machine, Memory, Outcome, Parameter, Preset, refuse_too_many
from gputui.presets.decomposition import (
    Blocks,
    Decomposition,
    check,
    dask_array,
    decompose_gram,
    decompose_randomized,
    decompose_tsqr,
)
from gputui.presets.random_streams import Rows

BLOCK_BYTES = 2**29
"""Of one block on a GPU: large enough for its matrix products to run at full speed."""
CPU_BLOCK_BYTES = 2**25
TSQR_CHUNK_BYTES = 2**31
"""Of a chunk on a GPU; cuSOLVER counts the numbers of a matrix in 32 bits."""
HELD_SHARE = 0.5
"""Of the smallest device: up to which drawn blocks are kept there between passes."""


def compute(job: Job) -> Outcome:
    """Decompose, check where asked, and report the largest singular values."""
    tall, wide = _shape(job.parameters)
    wanted = job["vectors"] or job["check"] or job.keep_arrays
    chunk_rows = _chunk_rows(job.parameters, job.machine)
    x = Blocks(job.backend, job["source"], job["seed"], wide, job["dtype"], _cut(tall, chunk_rows))
    found = _decompose(job, x, wanted)
    if not math.isfinite(float(found.s[0])):
        raise RunError("the matrix holds NaN or inf", hint="drop or replace such rows first")
    result = {
        "singular_values": [float(value) for value in found.s[: job["top"]]],
        "condition": _condition(found),
        "method": found.method,
    }
    if found.errors is not None:
        result["estimate_errors"] = [float(error) for error in found.errors[: job["top"]]]
    if found.passes is not None:
        result["passes"] = found.passes
    if job["check"]:
        result |= check(job, x, found)
    return Outcome(result, _figure(found), _arrays(job, found) if wanted else {})


def _condition(found: Decomposition) -> float | None:
    """Return the condition number; None where the smallest singular value is not known, or 0."""
    known = found.errors is None and found.s[-1] > 0
    return float(found.s[0] / found.s[-1]) if known else None


def _decompose(job: Job, x: Blocks, vectors: bool) -> Decomposition:
    if job["method"] == "randomized":
        return decompose_randomized(job, dask_array(x), job["k"], vectors)
    if job["method"] == "tsqr":
        return decompose_tsqr(job, dask_array(x), vectors)
    parts = _parts(x, job.machine.threads)
    heights = [[stop - start for start, stop in part.ranges] for part in parts]
    found = decompose_gram(job, parts, heights, vectors, keep=_fits(job))
    return found or decompose_tsqr(job, dask_array(x), vectors)


def _fits(job: Job) -> bool:
    """Whether a drawn part may stay on its device between the passes, together with u."""
    tall, wide = _shape(job.parameters)
    return 8 * wide * math.ceil(tall / job.machine.threads) <= _most_kept(job.machine)


def _most_kept(machine: Machine) -> float:
    """Return the bytes of a part that is not drawn again for each pass."""
    return HELD_SHARE / 2 * machine.smallest_bytes


def _cut(rows: int, height: int) -> tuple[Rows, ...]:
    return tuple((start, min(start + height, rows)) for start in range(0, rows, height))


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
    """Return the peak on one worker: blocks in use, kept results, and n × n matrices."""
    tall, wide = _shape(values)
    row = 8 * wide
    square = 8 * row * wide
    wants_u = values["vectors"] or values["check"] or machine.keeps_arrays
    share = row * math.ceil(tall / machine.threads)
    kept = share * ((share <= _most_kept(machine)) + bool(wants_u))
    copies = 2  # of a block: what is read, and what is made of it
    if values["method"] in ("tsqr", "randomized"):
        kept = share * (2 if wants_u or values["method"] == "randomized" else 1)
        copies = 4
    rest = machine.smallest_bytes - kept - square
    fits = max(rest, 0) // (copies * row)
    change = f"use chunk_rows ≤ {fits:,}" if fits >= 1 else "use fewer rows or more workers"
    return Memory(copies * row * _chunk_rows(values, machine) + kept + square, change)


def _check(values: Mapping[str, Any]) -> None:
    k, most = values["k"], min(values["rows"], values["cols"])
    if values["method"] == "randomized" and k > most:
        raise PresetError(f"svd: k={k}: must be at most the smaller of rows and cols, {most:,}")
    refuse_too_many("svd", values["rows"], values["cols"])


def _arrays(job: Job, found: Decomposition) -> dict[str, Any]:
    v = found.vt.T
    if job["rows"] >= job["cols"]:
        return {"u": found.u, "s": found.s, "v": v}
    return {"u": v, "s": found.s, "v": found.u}


def _figure(found: Decomposition) -> Figure:
    """Draw the singular values, a few hundred of them."""
    s = found.s
    step = max(1, len(s) // 500)
    return Figure(
        kind="line",
        title="singular values" if found.errors is None else "estimated singular values",
        y_label="σ",
        x_label="index",
        x=tuple(map(float, range(0, len(s), step))),
        y=tuple(map(float, s[::step])),
        logarithmic=True,
    )


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
            choices=("auto", "tsqr", "gram", "randomized"),
        ),
        Parameter("k", int, 10, "how many, for method=randomized", minimum=1),
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
    check=_check,
    arrays=("u", "s", "v"),
    draws=True,
)
