"""A preset's form: what was typed, what is wrong with it, and what it would take."""

from collections.abc import Mapping
from typing import Any

from gputui.errors import PresetError
from gputui.presets import Machine, Memory, Outcome, Parameter, Preset
from gputui.presets.job import Job
from gputui.tui.dialogs.run import Form, fits, headless_command, machine_of, memory_text
from tests.timelapse import Timelapse

MACHINE = Machine("cupy", workers=8, threads=8, smallest_bytes=10 * 2**30)


def compute(job: Job) -> Outcome:
    """Do nothing: forms only read a preset."""
    return Outcome({})


def check(values: Mapping[str, Any]) -> None:
    """Refuse more columns than rows."""
    if values["cols"] > values["rows"]:
        raise PresetError("cols must not exceed rows")


PRESET = Preset(
    "tall",
    "a tall matrix",
    (
        Parameter("rows", int, 10_000, "rows", minimum=1, cpu_default=1_000),
        Parameter("cols", int, 100, "columns", minimum=1, maximum=5_000),
        Parameter("method", str, "auto", "how", choices=("auto", "tsqr")),
        Parameter("chunk_rows", int, None, "rows a chunk"),
    ),
    compute,
    estimate=lambda values, machine: Memory(
        values["rows"] * values["cols"] * 8 // machine.workers, "use fewer rows"
    ),
    check=check,
)


def test_what_was_not_touched_is_not_sent() -> None:
    form = Form(PRESET, MACHINE).typed("rows", "20000").typed("cols", "100")
    assert form.parameters() == (("rows", "20000"),)


def test_a_text_put_back_to_its_default_is_not_sent() -> None:
    form = Form(PRESET, MACHINE).typed("rows", "5").typed("rows", "10000")
    assert form.parameters() == ()


def test_mistakes_stand_next_to_their_parameter() -> None:
    form = Form(PRESET, MACHINE).typed("rows", "many").typed("cols", "9000")
    form = form.typed("method", "guess")
    assert form.mistakes() == {
        "rows": "must be an integer of at least 1",
        "cols": "must be an integer from 1 to 5,000",
        "method": "must be one of auto, tsqr",
    }


def test_parameters_that_do_not_go_together_are_a_mistake_of_the_whole() -> None:
    form = Form(PRESET, MACHINE).typed("rows", "10")
    assert form.mistakes() == {"": "cols must not exceed rows"}


def test_an_estimate_says_whether_it_fits_and_what_to_change() -> None:
    small = Form(PRESET, MACHINE).typed("rows", "1e6").memory()
    assert small and small.peak_bytes == 100_000_000 and fits(small, MACHINE)
    large = Form(PRESET, MACHINE).typed("rows", "1e9").memory()
    assert not fits(large, MACHINE)
    assert memory_text(large, MACHINE).endswith("too large; use fewer rows")


def test_without_workers_or_with_mistakes_nothing_is_estimated() -> None:
    assert Form(PRESET, None).memory() is None
    assert Form(PRESET, MACHINE).typed("rows", "-1").memory() is None


def test_defaults_are_those_of_the_backend_it_would_run_on() -> None:
    on_cpus = Form(PRESET, Machine("numpy", 2, 4, 2**30))
    assert on_cpus.default_text(PRESET.parameters[0]) == "1000"
    assert Form(PRESET, MACHINE).default_text(PRESET.parameters[3]) == "auto"


def test_a_value_with_spaces_is_quoted_in_the_command() -> None:
    command = headless_command("lab", "mean", (("source", "a file.npy"),), "numpy")
    assert command == "gputui --attach lab --run mean -p 'source=a file.npy' --backend numpy"


def test_the_machine_is_what_the_workers_that_are_up_have() -> None:
    one = Timelapse((2, 4), troubles=False)
    assert machine_of(one.until(lambda snapshot: True)) is None
    machine = machine_of(one.until(lambda snapshot: snapshot.workers_up == 8))
    one.close()
    assert machine is not None
    assert (machine.backend, machine.workers) == ("cupy", 8)
    assert machine.smallest_bytes > 100 * 2**30
