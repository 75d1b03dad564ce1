"""Poisson's equation on a square by conjugate gradients: a Dask array, computed on step by step."""

from typing import Any

from gputui.presets import Figure, Job, Outcome, Parameter, Preset, array_module, to_host


def compute(job: Job) -> Outcome:
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


PARAMETERS = (
    Parameter("side", int, 4096, "points of a side of the square", 256, minimum=1, unit="points"),
    Parameter("chunk", int, 1024, "rows of a chunk", 128, minimum=1, unit="rows"),
    Parameter("tolerance", float, 1e-6, "of the residual, relative", minimum=1e-14),
    Parameter("most", int, 1000, "steps at most", minimum=1),
)
SUMMARY = "Poisson's equation by conjugate gradients"
PRESET = Preset("cg", SUMMARY, PARAMETERS, compute, arrays=("u",), draws=True)
