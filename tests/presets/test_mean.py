from typing import Any

import numpy as np
import pytest

from gputui import presets
from gputui.presets import Machine, mean

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
