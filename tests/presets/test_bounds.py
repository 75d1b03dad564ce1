"""Every parameter of every preset at the ends of what it accepts, and past them."""

import json
from typing import Any

import pytest

from gputui import presets
from gputui.errors import PresetError
from gputui.presets import Parameter

BOUNDED = [
    (name, parameter)
    for name in presets.names()
    for parameter in presets.get(name).parameters
    if parameter.minimum is not None
]
SMALLEST = {
    name: {p.name: p.type(p.minimum) for each, p in BOUNDED if each == name and p.name != "most"}
    for name in ("random-sum", "mean", "matmul", "convert", "transfer", "dataframe", "svd", "smoke")
}


@pytest.mark.parametrize(
    ("name", "parameter"), BOUNDED, ids=lambda value: getattr(value, "name", value)
)
def test_a_size_of_zero_or_below_is_refused(name: str, parameter: Parameter) -> None:
    for wrong in (int(parameter.minimum or 0) - 1, -(2**70)):
        with pytest.raises(PresetError, match=f"{parameter.name}=-?[0-9.e+]+: must be"):
            presets.parse(presets.get(name), {parameter.name: str(wrong)}).refuse_mistakes()


@pytest.mark.parametrize("name", SMALLEST)
def test_the_smallest_sizes_are_computed_with_all_that_is_declared(execute: Any, name: str) -> None:
    found = execute(name, keep_arrays=True, **SMALLEST[name])
    assert json.dumps(found.result, allow_nan=False) != "{}"
    assert tuple(found.arrays) == presets.get(name).arrays
    assert bool(found.figure) == presets.get(name).draws
