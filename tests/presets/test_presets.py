"""Each of the smaller presets against a reference."""

import importlib.util
from typing import Any

import numpy as np
import pandas as pd
import pytest

from gputui.errors import ClusterError, RunError
from gputui.presets import dataframe, matmul, random_streams


def test_smoke_adds_on_every_worker(execute: Any) -> None:
    result = execute("smoke", size=1000).result
    assert result["all_right"]
    assert [row["worker"] for row in result["workers"]] == ["0", "1"]


@pytest.mark.parametrize("dtype", ["float64", pytest.param("float32", marks=pytest.mark.slow)])
@pytest.mark.parametrize(("size", "block"), [(300, 128), (64, 64), (1, 1), (100, 1000)])
def test_matmul_checks_each_block(execute: Any, size: int, block: int, dtype: str) -> None:
    result = execute("matmul", size=size, block=block, dtype=dtype).result
    assert result["blocks"] == (-(-size // block)) ** 2
    assert result["deviation"] < matmul.TOLERANCE[dtype]


def test_a_wrong_product_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    exact = random_streams.draw

    class Wrong(np.ndarray):
        def __rmatmul__(self, other: Any) -> Any:
            return np.asarray(other) @ np.asarray(self) + 1e-3

    def draw_wrong(*arguments: Any) -> Any:
        drawn = exact(*arguments)
        return drawn.view(Wrong) if len(arguments) == 6 else drawn  # b alone

    monkeypatch.setattr(matmul, "draw", draw_wrong)
    task = ("numpy", 0, 50, "float64", (0, 50), (0, 50))
    assert matmul.multiply(*task) > matmul.TOLERANCE["float64"]


def test_convert_brings_chunks_back_as_they_were(execute: Any) -> None:
    outcome = execute("convert", mebibytes=2)
    assert outcome.result["round_trip_is_exact"]
    assert outcome.result["round_trip_bytes"] == 2 * 2 * 2**20
    assert all(row["within_host_bytes_per_s"] > 0 for row in outcome.result["workers"])
    assert not any("device" in key for row in outcome.result["workers"] for key in row)
    assert outcome.figure
    assert outcome.figure.title == "within host memory"


def test_transfer_times_every_pair(execute: Any) -> None:
    outcome = execute("transfer", mebibytes=1)
    rates = np.array(outcome.figure.matrix, dtype=float)
    assert np.isnan(np.diag(rates)).all()
    assert (rates[~np.eye(2, dtype=bool)] > 0).all()
    first, second = outcome.result["pairs"]
    assert (first["from"], first["to"]) == (second["to"], second["from"])
    assert first["path"] == "TCP" and 0 < first["64_KiB_s"] < 1


@pytest.mark.slow
@pytest.mark.parametrize("partitions", [1, 3, 12])
def test_dataframe_is_what_pandas_finds_in_any_partitions(execute: Any, partitions: int) -> None:
    result = execute("dataframe", rows=250_000, least=400, partitions=partitions).result
    tables = dataframe.Tables("pandas", seed=0, rows=250_000)
    orders, people = tables.orders((0, 250_000)), tables.people((0, tables.customers))
    joined = orders[orders.amount >= 400].merge(people, on="customer")
    expected = joined.groupby("region")["amount"].agg(["sum", "count"])
    found = pd.DataFrame(result["regions"]).set_index("region")
    np.testing.assert_array_equal(found.to_numpy(), expected.to_numpy())


def test_orders_are_spread_evenly_and_every_customer_has_one_region() -> None:
    tables = dataframe.Tables("pandas", seed=5, rows=400_000)
    orders, people = tables.orders((0, 400_000)), tables.people((0, tables.customers))
    assert people.customer.is_unique
    assert set(orders.customer) <= set(people.customer)
    for column, kinds in ((orders.amount, dataframe.AMOUNTS), (people.region, 4)):
        expected = len(column) / kinds
        squares = ((column.value_counts().reindex(range(kinds)) - expected) ** 2).sum() / expected
        assert abs(squares - kinds) < 6 * (2 * kinds) ** 0.5  # chi-squared: six deviations


@pytest.mark.parametrize("seed", [1, 2**32, 2**63 - 1])
def test_tables_of_other_seeds_are_others(seed: int) -> None:
    first, other = (dataframe.Tables("pandas", each, 10**6).orders((0, 100)) for each in (0, seed))
    assert not (first == other).all(axis=1).any()


def test_torch_finds_the_weights_or_is_said_to_be_missing(execute: Any) -> None:
    if importlib.util.find_spec("torch") is None:
        with pytest.raises(ClusterError, match=r"pip install 'gputui\[torch\]'"):
            execute("torch")
        return
    assert execute("torch", size=64).result["weight_error"] < 1e-3


@pytest.mark.parametrize("name", ["matmul", "dataframe", "convert", "transfer"])
def test_what_does_not_fit_is_refused_before_it_starts(execute: Any, name: str) -> None:
    large = {
        "matmul": {"size": 10**6, "block": 10**6},
        "dataframe": {"rows": 10**12, "partitions": 1},
        "convert": {"mebibytes": 10**6},
        "transfer": {"mebibytes": 10**6},
    }
    with pytest.raises(RunError, match=r"would take .* to give\n  use "):
        execute(name, **large[name])
