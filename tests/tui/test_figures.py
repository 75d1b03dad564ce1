"""The figure of a result is found, and drawn in lines with axes, labels and scales."""

import json

import pytest

from gputui.presets import Figure
from gputui.presets.definition import figure_of
from gputui.tui.rendering.figures import figure_lines, figure_text
from tests.tui.build import texts


def test_the_figure_of_a_run_is_the_one_that_its_preset_made() -> None:
    record = {"figure": {"kind": "heat", "title": "bandwidth", "matrix": [[1, None], [2, 3]]}}
    figure = figure_of(json.dumps(record | {"result": {"a": [1, 2, 3]}}))
    assert figure == Figure("heat", "bandwidth", matrix=((1, None), (2, 3)))


def test_numbers_that_are_not_finite_are_left_out_of_a_figure() -> None:
    record = {"kind": "line", "title": "t", "x": [0, 1, 2], "y": ["nan", 2.0, "inf"]}
    figure = figure_of(json.dumps({"figure": record}))
    assert figure == Figure("line", "t (2 not finite)", x=(1.0,), y=(2.0,))
    assert figure_of(json.dumps({"figure": record | {"y": ["nan"] * 3}})) is None


@pytest.mark.parametrize(
    "text",
    ["", "null", "[]", "{", '{"result": {"a": [1, 2, 3]}}', '{"figure": null}', '{"figure": {}}'],
)
def test_what_cannot_be_drawn_is_no_figure(text: str) -> None:
    assert figure_of(text) is None


FIGURES = (
    Figure("line", "falling", x=(1.0, 2.0, 3.0), y=(100.0, 10.0, 1.0), logarithmic=True),
    Figure("line", "level", x=(1.0,), y=(1.0,)),
    Figure("line", "zero and below", x=(1.0, 2.0), y=(-3.0, 0.0)),
    Figure("bar", "speeds", "numbers/s", labels=("a", "b"), y=(0.0, 5.0)),
    Figure("bar", "losses", labels=("a", "b", "c"), y=(-1.0, -5.0, 2.0)),
    Figure("bar", "below zero", labels=("a", "b"), y=(-1.0, -5.0)),
    Figure("bar", "a name " * 9, labels=("x" * 90, "b"), y=(1.0, 1e12)),
    Figure("heat", "links", matrix=((1.0, None), (2.0, 1.0))),
    Figure("heat", "many", matrix=((1.0, 2.0) * 200,) * 200),
    Figure("line", "nothing"),
)


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.title[:12])
@pytest.mark.parametrize("size", [(8, 2), (40, 5), (40, 10), (76, 20), (120, 40)])
def test_a_figure_stays_within_its_size(figure: Figure, size: tuple[int, int]) -> None:
    lines = drawn(figure, *size)
    assert len(lines) <= size[1]
    assert all(len(line) <= size[0] for line in lines)


def drawn(figure: Figure, width: int, height: int) -> list[str]:
    return texts(figure_lines(figure, width, height))


def test_values_that_fall_far_stand_on_an_axis_of_powers() -> None:
    values = tuple(10.0**-n for n in range(9))
    lines = drawn(Figure("line", "s", x=tuple(range(9)), y=values, logarithmic=True), 60, 20)
    named = [line.split()[0] for line in lines if "┤" in line]
    assert named[0] == "1e0" and named[-1] == "1e-8"
    rows = [n for n, line in enumerate(lines) if set(line) & set(map(chr, range(0x2801, 0x2900)))]
    assert rows == list(range(min(rows), max(rows) + 1)), "a straight line goes through every row"


def test_bars_have_labels_numbers_and_a_unit() -> None:
    figure = Figure("bar", "speed", "numbers/s", labels=("CPU", "GPU"), y=(1e9, 5e11))
    title, first, second = drawn(figure, 60, 8)
    assert title.split() == ["speed", "numbers/s"]
    assert first.startswith("CPU ") and first.endswith(" 1e+09")
    assert second.count("█") > 40
    _, first, second = drawn(Figure("bar", "", labels=("a", "b"), y=(-1.0, -4.0)), 60, 8)
    assert (first.count("█"), second.count("█")) == (14, 55)


def test_a_matrix_has_a_scale_its_labels_and_its_numbers() -> None:
    figure = Figure("heat", "GB/s", labels=("a", "b"), matrix=((None, 12.5), (48.0, None)))
    lines = drawn(figure, 60, 12)
    assert lines[1].split() == ["a", "b"]
    assert "12.5" in lines[2] and "48" in lines[3]
    assert lines[-1].split() == ["12.5", "▇" * 24, "48"]
    flat = figure_lines(figure, 60, 12, flat=True)
    assert "▁▁▁▂▂▂" in texts(flat)[-1], "heights speak without colour"


def test_a_figure_that_cannot_be_drawn_says_so_in_a_terminal() -> None:
    assert figure_text(Figure("line", "loss", x=(1.0,), y=(float("nan"),))).startswith(
        "loss: nothing"
    )
    assert figure_text({"kind": "heat", "matrix": 7}).startswith("its figure cannot be drawn")
