"""Mean, sum, standard deviation, variance, minimum or maximum of a matrix, over any axis.

The matrix is `numpy.random.default_rng(seed).random((rows, cols))`. It is reduced in fixed
logical tiles of rows, whose results are joined in their order: on one backend a seed gives the
same result, to the last bit, on any number of workers and with any number of tasks. CuPy and NumPy
reduce the same numbers in tiles of other sizes: their minimum and maximum agree bit for bit, the
others up to rounding.

Source for joining means and squares: T. F. Chan, G. H. Golub, R. J. LeVeque, "Updating formulae
and a pairwise algorithm for computing sample variances", 1979.
"""

import math
from collections.abc import Iterable, Mapping
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
    module_of,
    refuse_too_many,
    to_host,
)
from gputui.presets.random_streams import draw

# In a logical tile: enough numbers to fill a GPU, few enough to stay in a core's cache.
TILE_NUMBERS = {"cupy": 2**25, "numpy": 2**18}
TILES_A_TASK = {"cupy": 2**11, "numpy": 2**9}  # half a second of a GPU, or of a core
MOST_HELD = 12  # parts as long as a row that a task holds: its tree, and what joins two
FETCHED = 2  # a worker's share of one value a row: held, and on its way to be joined


@frozen
class Part:
    """The reduction of some rows: arrays over the columns, or numbers, each over `count` numbers.

    `squares` is the sum of squared differences from the mean.
    """

    count: int
    total: Any = None
    squares: Any = None
    extreme: Any = None


def compute(job: Job) -> Outcome:
    """Reduce runs of tiles in a few tasks, and join their parts in order."""
    import numpy as np

    rows, cols, axis, what = job["rows"], job["cols"], job["axis"], job["reduction"]
    height = _tile_rows(job.backend, cols)
    starts = list(range(0, rows, height))
    count = job["tasks"] or job.machine.tasks(len(starts), TILES_A_TASK[job.backend])
    # A power of two, so that any number of tasks joins the same pairs.
    per_task = 1 << (math.ceil(len(starts) / count) - 1).bit_length()
    runs = [starts[i : i + per_task] for i in range(0, len(starts), per_task)]
    reduce = partial(reduce_tiles, job.backend, what, axis, job["seed"], (rows, cols), height)
    parts = [part for run in job.results(job.map(reduce, runs), what) for part in run]
    if axis == "1":
        values = np.concatenate([part.total for part in parts])
    else:
        values = _finished(_tree(parts, what), what)
    result = (
        {what: float(values)}
        if values.ndim == 0
        else {what: [float(each) for each in values[:10]], "length": len(values)}
    )
    # Where there is one value only, the figure shows that of each tile.
    shown = [_finished(part, what) for part in parts] if axis == "none" else values
    step = max(1, len(shown) // 500)
    figure = Figure(
        "line",
        what,
        what,
        {"none": "tile", "0": "column", "1": "row"}[axis],
        x=tuple(map(float, range(0, len(shown), step))),
        y=tuple(map(float, shown[::step])),
    )
    return Outcome(result, figure, {"values": values})


def reduce_tiles(
    backend: str,
    what: str,
    axis: str,
    seed: int,
    shape: tuple[int, int],
    height: int,
    starts: list[int],
) -> list[Part]:
    """Return the part of each tile of one task; tiles are `height` rows from each start on.

    Over axis 0 a part is as long as a row: those of a task are joined into one before they leave.
    Over axis 1 the values are final: one part has them all, as its total.
    """
    import numpy as np

    rows, cols = shape
    # New pages for each tile would cost as much as drawing it: freed memory is given back at once.
    buffer = np.empty((min(height, rows), cols)) if backend == "numpy" else None
    over = {"none": None, "0": 0, "1": 1}[axis]
    found = (
        _part(draw(backend, seed, cols, (start, min(start + height, rows)), out=buffer), what, over)
        for start in starts
    )
    # They are fetched from the device when all tiles have been given to it.
    parts = [
        Part(part.count, *map(to_host, (part.total, part.squares, part.extreme)))
        for part in ([_tree(found, what)] if axis == "0" else list(found))
    ]
    if axis == "1":
        return [Part(cols, np.concatenate([_finished(part, what) for part in parts]))]
    return parts


def _part(x: Any, what: str, axis: int | None) -> Part:
    count = x.size if axis is None else x.shape[axis]
    if what in ("min", "max"):
        return Part(count, extreme=getattr(x, what)(axis=axis))
    total = x.sum(axis=axis)
    if what in ("mean", "sum"):
        return Part(count, total)
    mean = total / count
    rest = x - (mean[:, None] if axis == 1 else mean)
    return Part(count, total, (rest * rest).sum(axis=axis))


def _tree(parts: Iterable[Part], what: str) -> Part:
    """Join parts pair by pair, those pairs pair by pair, and so on; few are held at a time.

    Runs of a power of two of them may be joined first, each by itself, with the same result to
    the last bit.
    """
    held: list[tuple[int, Part]] = []
    for part in parts:
        size = 1
        while held and held[-1][0] == size:
            part, size = _sum(held.pop()[1], part, what), 2 * size
        held.append((size, part))
    _, whole = held.pop()
    while held:
        whole = _sum(held.pop()[1], whole, what)
    return whole


def _sum(a: Part, b: Part, what: str) -> Part:
    count = a.count + b.count
    if what in ("min", "max"):
        larger_or_smaller = getattr(module_of(a.extreme), f"{what}imum")
        return Part(count, extreme=larger_or_smaller(a.extreme, b.extreme))
    total = a.total + b.total
    if a.squares is None:
        return Part(count, total)
    apart = a.total / a.count - b.total / b.count
    between = apart * apart * (a.count * b.count / count)
    return Part(count, total, a.squares + b.squares + between)


def _finished(part: Part, what: str) -> Any:
    import numpy as np

    if what in ("min", "max"):
        return np.asarray(part.extreme)
    if what in ("mean", "sum"):
        return np.asarray(part.total / part.count if what == "mean" else part.total)
    variance = part.squares / part.count
    return np.asarray(variance if what == "var" else np.sqrt(variance))


def _tile_rows(backend: str, cols: int) -> int:
    return max(1, TILE_NUMBERS[backend] // cols)


def _estimate(values: Mapping[str, Any], machine: Machine) -> Memory:
    squares = values["reduction"] in ("std", "var")
    tile = 8 * values["cols"] * _tile_rows(machine.backend, values["cols"])
    tiles = (1 if machine.backend == "numpy" else 2) + 2 * squares  # NumPy draws over the last
    parts, change = 0, "use fewer cols"
    if values["axis"] == "0":
        parts = MOST_HELD * 8 * values["cols"] * (1 + squares)
    elif values["axis"] == "1":
        share = 8 * math.ceil(values["rows"] / machine.threads)
        parts, change = FETCHED * share, "use fewer rows, or more workers"
    return Memory(tiles * tile + parts, change)


PRESET = Preset(
    name="mean",
    summary="mean, sum, std, var, min or max of a large matrix, over any axis",
    parameters=(
        Parameter("rows", int, 10_000_000, "rows of the matrix", 1_000_000, minimum=1, unit="rows"),
        Parameter("cols", int, 1_000, "columns of the matrix", 100, minimum=1, unit="columns"),
        Parameter(
            "reduction",
            str,
            "mean",
            "what to compute",
            choices=("mean", "sum", "std", "var", "min", "max"),
        ),
        Parameter("axis", str, "none", "over which axis", choices=("none", "0", "1")),
        Parameter("seed", int, 0, "of the matrix", minimum=0, maximum=2**63 - 1),
        Parameter("tasks", int, None, "how many tasks; auto is four a thread or more", minimum=1),
    ),
    compute=compute,
    estimate=_estimate,
    check=partial(refuse_too_many, "mean"),
    arrays=("values",),
    draws=True,
)
