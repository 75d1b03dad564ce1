"""What presets accept to its ends, and that a mistake is said in the same words everywhere."""

import json
import shlex
from typing import Any

import numpy as np
import pytest
from distributed import Client

from gputui import presets
from gputui.cli import run_command
from gputui.errors import HeadError, PresetError
from gputui.presets import Machine, Parameter
from gputui.runs import execution
from gputui.tui.commands.actions import parse_run
from gputui.tui.dialogs.run import Form

MACHINE = Machine("numpy", workers=2, threads=2, smallest_bytes=2**30)
Texts = dict[str, str]


def of_python(client: Client, name: str, given: dict[str, Any]) -> str:
    with pytest.raises(PresetError) as caught:
        execution.execute(client, presets.get(name), given, backend="numpy")
    return str(caught.value)


def of_the_command_line(capsys: pytest.CaptureFixture[str], name: str, texts: Texts) -> str:
    words = [word for key, text in texts.items() for word in ("-p", f"{key}={text}")]
    assert run_command(["localhost", "--run", name, *words]) == 2
    return capsys.readouterr().err.removeprefix("gputui: ").rstrip()


def of_the_command_of_the_screen(name: str, texts: Texts) -> str:
    with pytest.raises(HeadError) as caught:
        parse_run(shlex.join([name, *(f"{key}={text}" for key, text in texts.items())]))
    return str(caught.value)


def of_the_form(name: str, texts: Texts) -> str:
    wrong = Form(presets.get(name), MACHINE, texts).mistakes()
    return "\n".join(
        f"{name}: {key}={texts[key]}: {what}" if key else what for key, what in wrong.items()
    )


@pytest.mark.parametrize(
    ("name", "given", "said"),
    [
        ("mean", {"rows": 0}, "mean: rows=0: must be an integer of at least 1"),
        ("mean", {"rows": 1.5}, "mean: rows=1.5: must be an integer of at least 1"),
        ("mean", {"rows": True}, "mean: rows=True: must be an integer of at least 1"),
        ("mean", {"rows": None}, "mean: rows=None: must be an integer of at least 1"),
        ("mean", {"rows": [1]}, "mean: rows=[1]: must be an integer of at least 1"),
        (
            "mean",
            {"seed": float("inf")},
            "mean: seed=inf: must be an integer from 0 to 9,223,372,036,854,775,807",
        ),
        ("mean", {"rowz": 5}, "mean: rowz=5: no such parameter (did you mean 'rows'?)"),
        ("smoke", {"x": 5}, "smoke: x=5: no such parameter: there is size"),
        ("svd", {"check": "maybe"}, "svd: check=maybe: must be true or false"),
        (
            "svd",
            {"method": "qr", "colls": 3},
            "svd: method=qr: must be one of auto, tsqr, gram (did you mean 'tsqr'?)\n"
            "svd: colls=3: no such parameter (did you mean 'cols'?)",
        ),
        (
            "svd",
            {"rows": 10**12},
            "svd: rows=1000000000000 cols=1000: 1e+15 numbers are too many; at most 1e+13",
        ),
        (
            "svd",
            {"rows": 10**400},
            f"svd: rows={10**400} cols=1000: 1e+403 numbers are too many; at most 1e+13",
        ),
    ],
)
def test_a_mistake_is_said_in_the_same_words_wherever_it_is_made(
    client: Client, capsys: pytest.CaptureFixture[str], name: str, given: dict[str, Any], said: str
) -> None:
    texts = {key: str(value) for key, value in given.items()}
    assert of_python(client, name, given) == said
    assert of_the_command_line(capsys, name, texts) == said
    assert of_the_command_of_the_screen(name, texts) == said
    assert of_the_form(name, texts) == said


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"reduction": "Mean"}, "mean: reduction=Mean: must be one of .*did you mean 'mean'"),
        ({"axis": 2}, "mean: axis=2: must be one of none, 0, 1"),
        ({"tasks": np.ones(2)}, r"mean: tasks=\[1. 1.\]: must be an integer"),
    ],
)
def test_python_code_is_not_given_what_it_seems_to_mean(
    client: Client, given: dict[str, Any], said: str
) -> None:
    with pytest.raises(PresetError, match=said):
        execution.execute(client, presets.get("mean"), given, backend="numpy")


def test_numbers_of_numpy_and_texts_are_taken_from_python_code() -> None:
    given = {"rows": np.int64(5), "cols": "1e2", "tasks": None, "seed": np.float32(3)}
    found = presets.parse(presets.get("mean"), given).complete("numpy")
    assert [found[name] for name in given] == [5, 100, None, 3]
    assert all(type(found[name]) is int for name in ("rows", "cols", "seed"))


@pytest.mark.parametrize("text", ["1000000", "1_000_000", "1e6"])
def test_whole_numbers_may_be_written_in_several_ways(text: str) -> None:
    assert presets.parse(presets.get("svd"), {"rows": text}).values == {"rows": 1_000_000}


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "1.5", "", "1e999", "٣٫٥"])
def test_what_is_no_whole_number_is_refused(text: str) -> None:
    assert presets.parse(presets.get("svd"), {"rows": text}).mistakes.keys() == {"rows"}


def test_a_default_may_differ_on_cpus() -> None:
    parsed = presets.parse(presets.get("random-sum"), {})
    assert parsed.complete("cupy")["size"] == 500_000
    assert parsed.complete("numpy")["size"] < 500_000


def test_parameters_that_go_together_nowhere_are_refused_before_any_worker_is_known() -> None:
    with pytest.raises(PresetError, match="at most"):
        presets.parse(presets.get("svd"), {"rows": "1e12"}).refuse_mistakes("auto")


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
