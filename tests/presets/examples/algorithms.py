"""Three presets to read and to copy: `gputui --run ./algorithms.py:KMEANS`, CHOLESKY or CG.

k-means is rounds of tasks on blocks that stay on the workers, the Cholesky factorization tasks
that depend on others, conjugate gradients a Dask array that is computed on step by step.
"""

from functools import partial
from typing import Any

from gputui.presets import Figure, Job, Outcome, Parameter, Preset, array_module, module_of, to_host


def k_means(job: Job) -> Outcome:
    """Move each centre to the mean of the points nearest to it, a few times, by Lloyd's rounds."""
    import numpy as np

    make = partial(points, job.backend, job["seed"], job["rows"])
    blocks = job.map(make, range(job["blocks"]))
    job.wait(blocks, "drawing points")
    centres = job.results([job.submit(to_host, blocks[0])])[0][: job["centres"]]
    inertias = []
    for _ in range(job["rounds"]):
        parts = job.results(job.map(partial(assign, centres), blocks), "moving centres")
        totals, counts, inertia = (sum(column) for column in zip(*parts, strict=True))
        inertias.append(float(inertia))
        centres = np.where(counts[:, None] > 0, totals / np.maximum(counts, 1)[:, None], centres)
    rounds = tuple(float(number) for number in range(1, len(inertias) + 1))
    figure = Figure("line", "inertia", "", "round", x=rounds, y=tuple(inertias), logarithmic=True)
    return Outcome({"centres": centres.tolist(), "inertia": inertias}, figure)


def points(backend: str, seed: int, rows: int, block: int) -> Any:
    """Return a block of points (rows, 2) around nine places, on this worker's device."""
    import numpy as np

    stream = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(block,)))
    places = stream.integers(0, 3, (rows, 2)) * 10.0
    return array_module(backend).asarray(places + stream.standard_normal((rows, 2)))


def assign(centres: Any, block: Any) -> tuple[Any, Any, float]:
    """Return the sum and the count of the points nearest to each centre, and the inertia."""
    xp = module_of(block)
    squares = ((block[:, None, :] - xp.asarray(centres)) ** 2).sum(axis=2)
    nearest = xp.eye(len(centres))[squares.argmin(axis=1)]
    sums, counts = to_host(nearest.T @ block), to_host(nearest.sum(axis=0))
    return sums, counts, float(squares.min(axis=1).sum())


KMEANS = Preset(
    "kmeans",
    "k-means of points in the plane",
    (
        Parameter("rows", int, 100_000, "points of a block", 10_000, minimum=1, unit="points"),
        Parameter("blocks", int, 16, "how many blocks", minimum=1),
        Parameter("centres", int, 9, "how many centres", minimum=1),
        Parameter("rounds", int, 10, "how many rounds", minimum=1),
        Parameter("seed", int, 0, "of the points", minimum=0),
    ),
    k_means,
    draws=True,
)


def cholesky(job: Job) -> Outcome:
    """Factor a covariance matrix by blocks of its lower triangle; all tasks start at once."""
    import dask.array as da
    import numpy as np

    size, count = job["block"], job["blocks"]
    lower = [(i, j) for i in range(count) for j in range(i + 1)]
    tiles = {at: job.submit(covariance, job.backend, size, job["length"], *at) for at in lower}
    for k in range(count):
        tiles[k, k] = job.submit(factor, tiles[k, k])
        for i in range(k + 1, count):
            tiles[i, k] = job.submit(solve, tiles[i, k], tiles[k, k])
            for j in range(k + 1, i + 1):
                tiles[i, j] = job.submit(update, tiles[i, j], tiles[i, k], tiles[j, k])
    job.wait(list(tiles.values()), "factoring")
    known = {"shape": (size, size), "dtype": "f8", "meta": np.empty((0, 0))}
    blocks = {at: da.from_delayed(tile, **known) for at, tile in tiles.items()}
    zeros = da.zeros((size, size))
    rows = [[blocks.get((i, j), zeros) for j in range(count)] for i in range(count)]
    logs = 2 * sum(da.log(da.diagonal(blocks[k, k])).sum() for k in range(count))
    determinant = job.compute(logs.map_blocks(to_host, dtype="f8"), "determinant")
    return Outcome({"log_determinant": float(determinant)}, arrays={"factor": da.block(rows)})


def covariance(backend: str, size: int, length: float, i: int, j: int) -> Any:
    """Return block (i, j) of exp(−distance / length) plus the identity."""
    xp = array_module(backend)
    apart = abs(xp.arange(size)[:, None] - xp.arange(size) + (i - j) * size)
    return xp.exp(-apart / length) + (apart == 0)


def factor(tile: Any) -> Any:
    """Return the factor of a block on the diagonal."""
    return module_of(tile).linalg.cholesky(tile)


def solve(tile: Any, diagonal: Any) -> Any:
    """Return tile · diagonal⁻ᵀ."""
    return module_of(tile).linalg.solve(diagonal, tile.T).T


def update(tile: Any, left: Any, right: Any) -> Any:
    """Return a block less the product of two blocks of a factored column."""
    return tile - left @ right.T


CHOLESKY = Preset(
    "cholesky",
    "factor a matrix in blocks",
    (
        Parameter("blocks", int, 8, "in each direction", 4, minimum=1),
        Parameter("block", int, 4096, "side of a block", 256, minimum=1, unit="rows"),
        Parameter("length", float, 50.0, "of the correlation", minimum=1e-6, unit="rows"),
    ),
    cholesky,
    arrays=("factor",),
)


def conjugate_gradients(job: Job) -> Outcome:
    """Solve −Δu = 1 with u = 0 outside, until the residual is small; u stays on the workers."""
    import dask.array as da

    side, chunk = job["side"], min(job["chunk"], job["side"])
    zeros = da.zeros((side, side), chunks=(chunk, side))
    residual = zeros.map_blocks(ones, job.backend, dtype="f8", meta=zeros._meta)
    u, residual = job.persist((residual * 0, residual), "drawing")
    direction, square = residual, float(side * side)
    target, norms = job["tolerance"] ** 2 * square, [square**0.5]
    while square > target and len(norms) <= job["most"]:
        image = direction.map_overlap(laplacian, depth=1, boundary=0, dtype="f8", meta=zeros._meta)
        image = job.persist(image, "multiplying")
        step = square / dot(job, direction, image)
        u, residual = job.persist((u + step * direction, residual - step * image), "moving")
        before, square = square, dot(job, residual, residual)
        direction = job.persist(residual + square / before * direction, "turning")
        norms.append(square**0.5)
    steps = tuple(float(number) for number in range(len(norms)))
    figure = Figure("line", "residual", "", "step", x=steps, y=tuple(norms), logarithmic=True)
    found = {"steps": len(norms) - 1, "residual": norms[-1], "converged": square <= target}
    return Outcome(found, figure, {"u": u})


def dot(job: Job, a: Any, b: Any) -> float:
    """Return the scalar product here; without CuPy here, so it leaves the device there."""
    return float(job.compute((a * b).sum().map_blocks(to_host, dtype="f8"), "product"))


def ones(block: Any, backend: str) -> Any:
    """Return the right-hand side on this worker's device."""
    return array_module(backend).ones(block.shape)


def laplacian(x: Any) -> Any:
    """Return −Δx on the inner points of a block with a margin of one, and zeros on the margin."""
    image = x * 0
    image[1:-1, 1:-1] = 4 * x[1:-1, 1:-1] - x[:-2, 1:-1] - x[2:, 1:-1] - x[1:-1, :-2] - x[1:-1, 2:]
    return image


CG = Preset(
    "cg",
    "Poisson's equation by conjugate gradients",
    (
        Parameter("side", int, 4096, "points of a side", 256, minimum=1, unit="points"),
        Parameter("chunk", int, 1024, "rows of a chunk", 128, minimum=1, unit="rows"),
        Parameter("tolerance", float, 1e-6, "of the residual, relative", minimum=1e-14),
        Parameter("most", int, 1000, "steps at most", minimum=1),
    ),
    conjugate_gradients,
    arrays=("u",),
    draws=True,
)
