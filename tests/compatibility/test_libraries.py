"""Libraries that compute with Dask give the same on a GPUCluster as on a LocalCluster."""

import asyncio
from collections.abc import Iterator
from typing import Any

import dask.array as da
import numpy as np
import pytest
from distributed import Client

from tests.compatibility.standing import cluster


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """The default client of a cluster."""
    with cluster() as held:
        connected = Client(held)
        yield connected
        connected.close()


def test_xarray_reduces(client: Client) -> None:
    xarray = pytest.importorskip("xarray")
    x = xarray.DataArray(da.arange(100, chunks=10).reshape(10, 10), dims=("a", "b"))
    np.testing.assert_array_equal(x.mean("a").values, np.arange(100).reshape(10, 10).mean(0))


@pytest.mark.long
def test_scikit_learn_searches_through_joblib(client: Client) -> None:
    joblib = pytest.importorskip("joblib")
    model_selection = pytest.importorskip("sklearn.model_selection")
    from sklearn.linear_model import Ridge

    x = np.random.default_rng(0).random((60, 3))
    search = model_selection.GridSearchCV(Ridge(), {"alpha": [0.01, 1.0, 100.0]}, cv=3)
    with joblib.parallel_backend("dask"):
        search.fit(x, x @ [1.0, 2.0, 3.0])
    assert search.best_params_ == {"alpha": 0.01}


def test_optuna_tries_on_the_workers(client: Client) -> None:
    optuna = pytest.importorskip("optuna")
    integration = pytest.importorskip("optuna_integration.dask", exc_type=ImportError)
    with pytest.warns(optuna.exceptions.ExperimentalWarning):
        storage = integration.DaskStorage()
    study = optuna.create_study(storage=storage)

    def tried(_: int) -> None:
        study.optimize(lambda trial: trial.suggest_float("x", -1, 1) ** 2, n_trials=1)

    client.gather(client.map(tried, range(4), pure=False))
    assert len(study.trials) == 4


def test_xgboost_trains(client: Client) -> None:
    xgboost = pytest.importorskip("xgboost")
    from xgboost import dask as training

    x = da.random.default_rng(0).random((400, 4), chunks=(100, 4))
    matrix = training.DaskDMatrix(client, x, x.sum(axis=1))
    trained = training.train(client, {"tree_method": "hist"}, matrix, num_boost_round=4)
    assert isinstance(trained["booster"], xgboost.Booster)


def test_dask_ml_clusters_searches_and_predicts(client: Client) -> None:
    pytest.importorskip("dask_ml")
    from dask_ml.cluster import KMeans
    from dask_ml.model_selection import GridSearchCV
    from dask_ml.wrappers import ParallelPostFit
    from sklearn.linear_model import LogisticRegression

    x = da.random.default_rng(0).random((400, 3), chunks=(100, 3))
    near, y = np.asarray(x), np.asarray(x.sum(axis=1) > 1.5)
    assert KMeans(3, random_state=0).fit(x).cluster_centers_.shape == (3, 3)
    searched = GridSearchCV(LogisticRegression(), {"C": [0.01, 100.0]}, cv=3).fit(near, y)
    assert searched.best_params_ == {"C": 100.0}
    predicted = ParallelPostFit(LogisticRegression(C=100.0).fit(near, y)).predict(x)
    assert (predicted.compute() == y).mean() > 0.95


async def test_labextensions_manager_describes_and_scales(client: Client) -> None:
    manager = pytest.importorskip("dask_labextension.manager", exc_type=ImportError)
    held: Any = client.cluster
    model = manager.make_cluster_model("id", "name", held, adaptive=None)
    assert (model["workers"], model["cores"]) == (2, 2)
    assert isinstance(model["dashboard_link"], str)


@pytest.mark.slow
def test_a_collection_is_shuffled_and_grouped(client: Client) -> None:
    frames = pytest.importorskip("dask.dataframe")
    import pandas as pd

    frame = pd.DataFrame({"k": np.arange(200) % 7, "v": np.arange(200.0)})
    found = frames.from_pandas(frame, npartitions=4).shuffle("k").groupby("k").v.sum().compute()
    pd.testing.assert_series_equal(found.sort_index(), frame.groupby("k").v.sum())


def test_tasks_that_fail_raise_what_they_raised(client: Client) -> None:
    with pytest.raises(ZeroDivisionError):
        client.submit(lambda: 1 / 0, pure=False).result()
    assert asyncio.run(_both(client.scheduler.address, client.security)) == 3


async def _both(address: str, security: Any) -> int:
    async with Client(
        address, security=security, asynchronous=True, set_as_default=False
    ) as connected:
        found: int = await connected.submit(sum, [1, 2])
        return found
