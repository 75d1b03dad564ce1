"""The figure of a result is found and can be drawn with characters alone."""

import json

import pytest

from gputui.presets import Figure
from gputui.tui.rendering.figures import as_text, figure_of


def result(**values: object) -> str:
    return json.dumps({"preset": "x", "result": values})


def test_singular_values_are_a_line_and_logarithmic_where_they_fall_far() -> None:
    figure = figure_of(result(residual=1e-15, singular_values=[1000.0, 20.0, 0.5]))
    assert figure is not None
    assert (figure.kind, figure.title, figure.logarithmic) == ("line", "singular values", True)


def test_the_figure_that_the_preset_made_comes_first() -> None:
    record = {"figure": {"kind": "heat", "title": "bandwidth", "matrix": [[1, None], [2, 3]]}}
    figure = figure_of(json.dumps(record | {"result": {"a": [1, 2, 3]}}))
    assert figure == Figure("heat", "bandwidth", matrix=((1, None), (2, 3)))


def test_a_table_of_numbers_is_bars_and_a_matrix_heat() -> None:
    bars = figure_of(result(speed={"one": 1, "two": 2, "three": 3}))
    heat = figure_of(result(bandwidth=[[1.0, 2.0], [2.0, 1.0]]))
    assert bars is not None and bars.kind == "bar"
    assert heat is not None and heat.kind == "heat"


def test_numbers_that_are_not_finite_are_left_out_of_a_figure() -> None:
    record = {"kind": "line", "title": "t", "x": [0, 1, 2], "y": ["nan", 2.0, "inf"]}
    figure = figure_of(json.dumps({"figure": record}))
    assert figure == Figure("line", "t (2 not finite)", x=(1.0,), y=(2.0,))
    assert figure_of(json.dumps({"figure": record | {"y": ["nan"] * 3}})) is None


@pytest.mark.parametrize("text", ["", "null", "[]", "{", '{"result": 3}', result(sum=3.5, n="x")])
def test_what_cannot_be_drawn_is_no_figure(text: str) -> None:
    assert figure_of(text) is None


@pytest.mark.parametrize(
    "figure",
    [
        Figure("line", "falling", x=(1.0, 2.0, 3.0), y=(100.0, 10.0, 1.0), logarithmic=True),
        Figure("line", "level", x=(1.0,), y=(1.0,)),
        Figure("bar", "speeds", labels=("a", "b"), y=(0.0, 5.0)),
        Figure("heat", "links", matrix=((1.0, None), (2.0, 1.0))),
        Figure("line", "nothing"),
    ],
)
@pytest.mark.parametrize("size", [(8, 2), (40, 10), (120, 40)])
def test_a_figure_stays_within_its_size(figure: Figure, size: tuple[int, int]) -> None:
    lines = as_text(figure, *size)
    assert len(lines) <= size[1]
    assert all(len(line) <= max(size[0], 20) for line in lines)


def test_ascii_figures_are_ascii() -> None:
    figure = Figure("line", "falling", x=(1.0, 2.0, 3.0), y=(100.0, 10.0, 1.0))
    assert "".join(as_text(figure, 40, 8, ascii_only=True)).isascii()
