"""The examples of how to write a preset, each against NumPy or SciPy."""

from typing import Any

import numpy as np
import pytest
import scipy.cluster.vq
import scipy.sparse
import scipy.sparse.linalg
from distributed import Client
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from gputui import presets
from gputui.runs import execution
from tests.presets.examples import algorithms as examples
from tests.presets.examples import gridsearch


def run(client: Client, name: str, **given: Any) -> execution.RunResult:
    """Run an example as a user's file is run."""
    preset = presets.get(f"{examples.__file__}:{name}")
    return execution.execute(client, preset, given, backend="numpy", keep_arrays=True)


@pytest.mark.slow
def test_k_means_moves_the_centres_as_scipy_does(client: Client) -> None:
    result = run(client, "KMEANS", rows=500, blocks=3, centres=9, rounds=6, seed=4).result
    points = np.concatenate([examples.points("numpy", 4, 500, block) for block in range(3)])
    centres, _ = scipy.cluster.vq.kmeans2(points, points[:9].copy(), iter=6, minit="matrix")
    np.testing.assert_allclose(result["centres"], centres, rtol=1e-10)
    assert result["inertia"] == sorted(result["inertia"], reverse=True)


def test_blocks_make_the_factor_that_numpy_finds(client: Client) -> None:
    found = run(client, "CHOLESKY", blocks=3, block=20, length=7.0)
    place = np.arange(60)
    matrix = np.exp(-abs(place[:, None] - place) / 7.0) + np.eye(60)
    np.testing.assert_allclose(
        np.tril(found.arrays["factor"].compute()), np.linalg.cholesky(matrix), atol=1e-12
    )
    assert found.result["log_determinant"] == pytest.approx(np.linalg.slogdet(matrix)[1])


@pytest.mark.slow
def test_conjugate_gradients_solve_what_scipy_solves(client: Client) -> None:
    found = run(client, "CG", side=5, chunk=2, tolerance=1e-10)
    line = scipy.sparse.diags_array([2.0, -1.0, -1.0], offsets=[0, 1, -1], shape=(5, 5))
    identity = scipy.sparse.eye_array(5)
    matrix = scipy.sparse.kron(line, identity) + scipy.sparse.kron(identity, line)
    expected = scipy.sparse.linalg.spsolve(matrix.tocsc(), np.ones(25))
    assert found.result["converged"]
    np.testing.assert_allclose(found.arrays["u"].compute().ravel(), expected, rtol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("rows", [400, 403])
def test_gridsearch_finds_what_scikit_learn_finds(client: Client, rows: int) -> None:
    given = {"rows": rows, "cols": 8, "candidates": 5, "folds": 4, "seed": 3}
    preset = presets.get(gridsearch.__file__)
    result = execution.execute(client, preset, given, backend="numpy").result
    alphas = gridsearch.candidates(5)
    x, y = gridsearch.make_samples("numpy", 3, rows, 8)
    search = GridSearchCV(
        make_pipeline(StandardScaler(), Ridge()), {"ridge__alpha": alphas}, cv=KFold(4)
    ).fit(x, y)
    np.testing.assert_allclose(result["scores"], search.cv_results_["mean_test_score"], rtol=1e-10)
    assert result["best_alpha"] == search.best_params_["ridge__alpha"]
