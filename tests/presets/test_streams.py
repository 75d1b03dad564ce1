import numpy as np
import pytest

from gputui.presets import random_streams

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
