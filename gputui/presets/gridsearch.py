"""A hyper-parameter search over the workers, with any estimator of scikit-learn's kind.

Each task fits one candidate on one fold through `fit`, `transform` and `predict`: a scaler and a
ridge regression, of cuML on GPUs where it is installed, of scikit-learn otherwise. The scores
are those that `sklearn.model_selection.GridSearchCV` would find.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from functools import partial
from itertools import product
from typing import Any

from gputui.presets import Figure, Library, Machine, Memory, Outcome, Parameter, Preset
from gputui.presets.job import Job

Data = tuple[int, int, int]
"""What the samples are made from: seed, rows, columns."""


def compute(job: Job) -> Outcome:
    """Score every candidate on every fold, and report the best."""
    alphas = candidates(job["candidates"])
    folds = job["folds"]
    library = "cuml" if job.backend == "cupy" and "cuml" in job.libraries else "sklearn"
    fit = partial(score, library, (job["seed"], job["rows"], job["cols"]), folds)
    fits = job.map(fit, *zip(*product(alphas, range(folds)), strict=True))
    scores = job.results(fits, "fitting")
    means = [statistics.fmean(scores[i : i + folds]) for i in range(0, len(scores), folds)]
    best = max(range(len(alphas)), key=means.__getitem__)
    return Outcome(
        {
            "library": library,
            "best_alpha": alphas[best],
            "best_score": means[best],
            "fits": len(fits),
            "scores": means,
        },
        Figure(
            "bar",
            "mean score (r²) of each alpha",
            labels=tuple(f"{alpha:.1e}" for alpha in alphas),
            y=tuple(means),
        ),
    )


def candidates(count: int) -> list[float]:
    """Return so many strengths of regularization, from 0.001 to 1,000.

    >>> candidates(3)
    [0.001, 1.0, 1000.0]
    """
    return [10 ** (-3 + 6 * i / max(count - 1, 1)) for i in range(count)]


def score(library: str, data: Data, folds: int, alpha: float, fold: int) -> float:
    """Return r² on one fold of one candidate fitted on the others."""
    x, y = make_data(data)
    first, end = fold_rows(len(x), folds, fold)
    test, train = slice(first, end), [*range(first), *range(end, len(x))]
    scaler, model = _estimators(library, alpha)
    model.fit(scaler.fit_transform(x[train]), y[train])
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


def make_data(data: Data) -> tuple[Any, Any]:
    """Return features (rows, cols) and a noisy linear target (rows,)."""
    import numpy as np

    seed, rows, cols = data
    stream = np.random.default_rng(seed)
    x = stream.normal(size=(rows, cols))
    y = x @ stream.normal(size=cols) + stream.normal(scale=3.0, size=rows)
    return x, y


def _estimators(library: str, alpha: float) -> tuple[Any, Any]:
    if library == "cuml":
        from cuml.linear_model import Ridge
        from cuml.preprocessing import StandardScaler
    else:
        from sklearn.linear_model import Ridge
        from sklearn.preprocessing import StandardScaler
    return StandardScaler(), Ridge(alpha=alpha)


def _estimate(values: Mapping[str, Any], machine: Machine) -> Memory:
    row = 8 * 4 * values["cols"]
    return Memory(row * values["rows"], f"use rows ≤ {machine.smallest_bytes // row:,}")


PRESET = Preset(
    name="gridsearch",
    summary="a hyper-parameter search over the workers: cuML, or scikit-learn without it",
    parameters=(
        Parameter("rows", int, 20_000, "samples", 2_000, minimum=20, unit="rows"),
        Parameter("cols", int, 100, "features", 20, minimum=1, unit="columns"),
        Parameter("candidates", int, 9, "alphas from 0.001 to 1,000", minimum=1, maximum=10_000),
        Parameter("folds", int, 5, "of the cross-validation", minimum=2, maximum=10),
        Parameter("seed", int, 0, "of the samples", minimum=0, maximum=2**63 - 1),
    ),
    compute=compute,
    estimate=_estimate,
    requires=(Library("sklearn", "pip install 'gputui[gridsearch]'"),),
    draws=True,
)
