from typing import Any

import numpy as np
import pytest

from gputui.presets.random_sum import TILE, add_tiles


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


def test_another_seed_gives_another_sum(execute: Any) -> None:
    sums = {execute("random-sum", size=1000, seed=n).result["sum"] for n in (0, 1)}
    assert len(sums) == 2


@pytest.mark.parametrize("size", [1, 2, 1023, 1024, 1025, 4000])
def test_the_sum_is_within_five_standard_errors(execute: Any, size: int) -> None:
    result = execute("random-sum", size=size).result
    assert abs(result["standard_errors"]) < 5
    assert result["numbers"] == size**2
    assert result["expected"] == ((size + 1) // 2) ** 2 * 11


def test_tiles_do_not_depend_on_how_they_are_shared_out() -> None:
    whole = add_tiles("numpy", 3000, 0, (0, 9))
    parts = [add_tiles("numpy", 3000, 0, span) for span in ((0, 2), (2, 9))]
    assert [a + b for a, b in zip(*parts, strict=True)] == list(whole)


def test_long_seeds_and_tiles_have_streams_of_their_own() -> None:
    size = 2 * TILE
    drawn = {
        (seed, tile): add_tiles("numpy", size, seed, (tile, tile + 1))[1][0]
        for seed in (1, 1 + 2**32, 1 + 2**33, 2**63 - 1)
        for tile in (0, 1, 2)
    }
    assert len(set(drawn.values())) == len(drawn)
