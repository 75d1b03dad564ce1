"""k-means by Lloyd's rounds: the points stay on the workers, the centres travel."""

from functools import partial
from typing import Any

from gputui.presets import Figure, Job, Outcome, Parameter, Preset, array_module, module_of, to_host


def compute(job: Job) -> Outcome:
    """Move each centre to the mean of the points nearest to it, a few times."""
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
    return (
        to_host(nearest.T @ block),
        to_host(nearest.sum(axis=0)),
        float(squares.min(axis=1).sum()),
    )


PARAMETERS = (
    Parameter("rows", int, 100_000, "points of a block", 10_000, minimum=1, unit="points"),
    Parameter("blocks", int, 16, "how many blocks", minimum=1),
    Parameter("centres", int, 9, "how many centres", minimum=1),
    Parameter("rounds", int, 10, "how many rounds", minimum=1),
    Parameter("seed", int, 0, "of the points", minimum=0),
)
PRESET = Preset("kmeans", "k-means of points in the plane", PARAMETERS, compute, draws=True)
