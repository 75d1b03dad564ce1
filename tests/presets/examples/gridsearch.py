"""A hyper-parameter search: `gputui --run ./gridsearch.py`, with any of scikit-learn's estimators.

The samples are made once; Dask puts them on each worker once, and they stay there. Each task fits
one candidate on one fold through `fit`, `transform` and `predict`: a scaler and a ridge regression,
of cuML on GPUs, of scikit-learn on CPUs. The scores are those that
`sklearn.model_selection.GridSearchCV` would find.
"""

import math
import statistics
from collections.abc import Mapping
from functools import partial
from itertools import product
from typing import Any

from gputui.presets import (
    RAPIDS_INSTALL,
    Figure,
    Job,
    Library,
    Machine,
    Memory,
    Outcome,
    Parameter,
    Preset,
    array_module,
    module_of,
)
from gputui.presets.random_streams import draw

Samples = tuple[Any, Any]  # features (rows, cols) and target (rows,)
NOISE = 3.0
MOST_BARS = 16


def compute(job: Job) -> Outcome:
    """Score every candidate on every fold, and report the best."""
    alphas = candidates(job["candidates"])
    folds = job["folds"]
    library = "cuml" if job.backend == "cupy" else "sklearn"
    samples = job.submit(make_samples, job.backend, job["seed"], job["rows"], job["cols"])
    job.wait([samples], "drawing")
    tasks = [(samples, alpha, fold) for alpha, fold in product(alphas, range(folds))]
    fits = job.map(partial(score, library, folds), *zip(*tasks, strict=True))
    scores = job.results(fits, "fitting")
    means = [statistics.fmean(scores[i : i + folds]) for i in range(0, len(scores), folds)]
    best = max(range(len(alphas)), key=means.__getitem__)
    result = {
        "library": library,
        "best_alpha": alphas[best],
        "best_score": means[best],
        "fits": len(fits),
        "scores": means,
    }
    return Outcome(result, _figure(alphas, means))


def _figure(alphas: list[float], means: list[float]) -> Figure:
    """Draw a bar for each candidate, or a line where there are many."""
    y = tuple(means)
    if len(alphas) > MOST_BARS:
        x = tuple(map(math.log10, alphas))
        return Figure("line", "mean score", "r²", "log₁₀ alpha", x=x, y=y)
    labels = tuple(f"{alpha:.1e}" for alpha in alphas)
    return Figure("bar", "mean score of each alpha", "r²", labels=labels, y=y)


def candidates(count: int) -> list[float]:
    """Return so many strengths of regularization, from 0.001 to 1,000.

    >>> candidates(3)
    [0.001, 1.0, 1000.0]
    """
    return [10 ** (-3 + 6 * i / max(count - 1, 1)) for i in range(count)]


def score(library: str, folds: int, samples: Samples, alpha: float, fold: int) -> float:
    """Return r² on one fold of one candidate fitted on the others."""
    x, y = samples
    first, end = fold_rows(len(x), folds, fold)
    test, join = slice(first, end), module_of(x).concatenate
    if library == "cuml":
        from cuml.linear_model import Ridge
        from cuml.preprocessing import StandardScaler
    else:
        from sklearn.linear_model import Ridge
        from sklearn.preprocessing import StandardScaler
    scaler, model = StandardScaler(), Ridge(alpha=alpha)
    model.fit(scaler.fit_transform(join((x[:first], x[end:]))), join((y[:first], y[end:])))
    predicted = model.predict(scaler.transform(x[test]))
    rest, spread = y[test] - predicted, y[test] - y[test].mean()
    return 1 - float((rest * rest).sum() / (spread * spread).sum())


def fold_rows(rows: int, folds: int, fold: int) -> tuple[int, int]:
    """Return the first row of a fold and the one after its last, as scikit-learn's KFold does.

    The first folds are longer by one where the rows do not divide.

    >>> [fold_rows(11, 3, fold) for fold in range(3)]
    [(0, 4), (4, 8), (8, 11)]
    """
    length, longer = divmod(rows, folds)
    first = fold * length + min(fold, longer)
    return first, first + length + (fold < longer)


def make_samples(backend: str, seed: int, rows: int, cols: int) -> Samples:
    """Return uniform features and a noisy linear target, the same on either backend."""
    xp, numbers = array_module(backend), draw(backend, seed, cols + 2, (0, rows))
    x = xp.ascontiguousarray(numbers[:, :cols])
    return x, x @ xp.cos(xp.arange(cols) * 1.0) + NOISE * (numbers[:, -1] - numbers[:, -2])


def _estimate(values: Mapping[str, Any], machine: Machine) -> Memory:
    row = 8 * 4 * values["cols"]
    return Memory(row * values["rows"], f"use rows ≤ {machine.smallest_bytes // row:,}")


PRESET = Preset(
    name="gridsearch",
    summary="a hyper-parameter search over the workers: cuML, or scikit-learn on CPUs",
    parameters=(
        Parameter("rows", int, 1_000_000, "samples", 2_000, minimum=20, unit="rows"),
        Parameter("cols", int, 500, "features", 20, minimum=1, unit="columns"),
        Parameter("candidates", int, 9, "alphas from 0.001 to 1,000", minimum=1, maximum=10_000),
        Parameter("folds", int, 5, "of the cross-validation", minimum=2, maximum=10),
        Parameter("seed", int, 0, "of the samples", minimum=0, maximum=2**63 - 1),
    ),
    compute=compute,
    estimate=_estimate,
    requires=(
        Library("sklearn", "pip install scikit-learn", backends=("numpy",)),
        Library("cuml", RAPIDS_INSTALL, backends=("cupy",)),
    ),
    draws=True,
)
