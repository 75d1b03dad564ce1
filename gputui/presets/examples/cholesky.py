"""The Cholesky factor of a covariance matrix, block by block: tasks that depend on others."""

from typing import Any

from gputui.presets import Job, Outcome, Parameter, Preset, array_module, module_of, to_host


def compute(job: Job) -> Outcome:
    """Factor the blocks of the lower triangle, column by column; all tasks start at once."""
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


PARAMETERS = (
    Parameter("blocks", int, 8, "in each direction", 4, minimum=1),
    Parameter("block", int, 4096, "side of a block", 256, minimum=1, unit="rows"),
    Parameter("length", float, 50.0, "of the correlation", minimum=1e-6, unit="rows"),
)
PRESET = Preset("cholesky", "factor a matrix in blocks", PARAMETERS, compute, arrays=("factor",))
