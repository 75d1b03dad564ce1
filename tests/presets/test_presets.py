"""Each of the smaller presets against a reference."""

import importlib.util
from typing import Any

import numpy as np
import pandas as pd
import pytest
from distributed import Client, Scheduler, SpecCluster, Worker

from gputui import presets
from gputui.errors import ClusterError, RunError
from gputui.presets import Machine, dataframe, matmul, mean, random_streams
from gputui.presets.random_sum import TILE, add_tiles
from gputui.process import cgroups
from gputui.runs import execution


def test_smoke_adds_on_every_worker(execute: Any) -> None:
    result = execute("smoke", size=1000).result
    assert result["all_right"]
    assert [row["worker"] for row in result["workers"]] == ["0", "1"]


def test_workers_without_a_limit_share_the_free_memory_of_their_own_host() -> None:
    names = ("a:cpu0", "b:cpu0", "c:cpu0", "d:cpu0", "d:cpu1")
    options = {"nthreads": 1, "memory_limit": None, "dashboard": False}
    workers = {name: {"cls": Worker, "options": options} for name in names}
    scheduler = {"cls": Scheduler, "options": {"dashboard": False}}
    use = cgroups.memory()
    free = use.total_bytes - use.used_bytes
    with SpecCluster(workers, scheduler) as cluster, Client(cluster) as client:
        found = execution.execute(client, presets.get("smoke"), {"size": 9}, backend="numpy")
    rooms = [each.memory_bytes for each in found.workers]
    assert rooms == pytest.approx([free / 2] * 3 + [free / 4] * 2, rel=0.3)


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


def test_the_sum_is_that_of_the_expression_on_the_same_numbers(execute: Any) -> None:
    size = 1500
    x = np.empty((size, size))
    for tile in range(4):
        rows, columns = np.arange(TILE) + TILE * (tile // 2), np.arange(TILE) + TILE * (tile % 2)
        rows, columns = rows[rows < size], columns[columns < size]
        own = np.random.SeedSequence(7, spawn_key=(tile,))
        stream = np.random.Generator(np.random.SFC64(own))
        drawn = stream.standard_normal((len(rows), len(columns))) + 10
        x[np.ix_(rows, columns)] = drawn
    result = execute("random-sum", size=size, seed=7).result
    assert result["sum"] == pytest.approx((x + 1)[::2, ::2].sum(), rel=1e-13)
    assert result["mean_of_all"] == pytest.approx(x.mean(), rel=1e-13)


@pytest.mark.slow
def test_a_seed_gives_the_same_sum_in_any_number_of_tasks(execute: Any) -> None:
    sums = {execute("random-sum", size=5000, tasks=n).result["sum"] for n in (1, 3, 25, 1000)}
    assert len(sums) == 1


@pytest.mark.parametrize("size", [1, 2, 1023, 1024, 1025, 4000])
def test_the_sum_is_within_five_standard_errors(execute: Any, size: int) -> None:
    result = execute("random-sum", size=size).result
    assert abs(result["standard_errors"]) < 5
    assert result["numbers"] == size**2
    assert result["expected"] == ((size + 1) // 2) ** 2 * 11


def test_long_seeds_and_tiles_have_streams_of_their_own() -> None:
    size = 2 * TILE
    drawn = {
        (seed, tile): add_tiles("numpy", size, seed, (tile, tile + 1))[1][0]
        for seed in (1, 1 + 2**32, 1 + 2**33, 2**63 - 1)
        for tile in (0, 1, 2)
    }
    assert len(set(drawn.values())) == len(drawn)


AXES = {"none": None, "0": 0, "1": 1}


@pytest.mark.parametrize("axis", ["none", "0", "1"])
@pytest.mark.parametrize("what", ["mean", "sum", "std", "var", "min", "max"])
def test_reductions_are_those_of_numpy(execute: Any, what: str, axis: str) -> None:
    outcome = execute("mean", rows=5000, cols=70, reduction=what, axis=axis, seed=2)
    x = np.random.default_rng(2).random((5000, 70))
    expected = getattr(np, what)(x, axis=AXES[axis])
    np.testing.assert_allclose(outcome.arrays["values"], expected, rtol=1e-12)


def test_a_seed_gives_the_same_mean_in_any_number_of_tasks(execute: Any) -> None:
    found = {
        execute("mean", rows=20_000, cols=50, reduction="std", tasks=n).result["std"]
        for n in (1, 2, 7, 100)
    }
    assert len(found) == 1


def test_one_row_of_many_columns_is_reduced(execute: Any) -> None:
    result = execute("mean", rows=1, cols=300_000).result
    assert result["mean"] == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize("what", ["mean", "var", "max"])
def test_columns_are_the_same_to_the_last_bit_in_any_number_of_tasks(
    execute: Any, what: str
) -> None:
    first, *others = (
        execute("mean", rows=9_000, cols=700, reduction=what, axis="0", tasks=n).arrays["values"]
        for n in (1, 3, 7, 100)
    )
    assert all((first == each).all() for each in others)


@pytest.mark.parametrize("what", ["mean", "std", "min"])
def test_columns_are_reduced_before_they_leave_a_worker(what: str) -> None:
    parts = mean.reduce_tiles("numpy", what, "0", 0, (1000, 50), 10, list(range(0, 1000, 10)))
    assert len(parts) == 1


def test_values_a_row_that_workers_cannot_hold_are_refused_with_what_to_change() -> None:
    preset = presets.get("mean")
    values = {"rows": 60_000_000, "cols": 2, "axis": "1", "reduction": "std"}
    machine = Machine("numpy", workers=1, threads=2, smallest_bytes=2**28)
    assert preset.estimate
    memory = preset.estimate(presets.parse(preset, values).complete("numpy"), machine)
    assert memory.peak_bytes > machine.smallest_bytes
    assert memory.change == "use fewer rows, or more workers"


WHOLE = np.random.default_rng(5).random((100, 37))


@pytest.mark.parametrize("rows", [(0, 100), (0, 1), (13, 50), (99, 100)])
def test_rows_are_those_of_numpys_default_generator(rows: tuple[int, int]) -> None:
    np.testing.assert_array_equal(random_streams.draw("numpy", 5, 37, rows), WHOLE[slice(*rows)])


def test_a_block_is_that_of_the_whole_matrix() -> None:
    block = random_streams.draw("numpy", 5, 37, (13, 50), columns=(3, 9))
    np.testing.assert_array_equal(block, WHOLE[13:50, 3:9])


def test_a_jump_is_as_many_single_steps() -> None:
    state = np.random.PCG64(5).state["state"]
    a, c = random_streams._jump(1000, state["inc"])
    moved = np.random.PCG64(5).advance(1000).state["state"]["state"]
    assert moved == (a * state["state"] + c) % 2**128
