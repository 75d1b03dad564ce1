"""The walks through the code that `gputui help how-it-works` lists: a tracer sees every step."""

import json
import os
import re
from pathlib import Path

import pytest

from tests import fakes, tracing
from tests.system.conftest import Command

TOPIC = Path(__file__).parent.parent.parent / "gputui" / "help" / "how-it-works.md"
STEP = re.compile(r"^\d+\. `(gputui/\S+\.py)` `(\S+)`", re.M)
BOUNDS = {
    "A line of the hosts file → a running worker": (12, 25),
    "A reading → a cell": (20, 40),
    "`+` → workers started": (18, 35),
    "`--run svd` → printed": (15, 28),
    "A task's exception → the screen": (10, 18),
}
"""Walk → how many files and functions it may have at most."""

FAILS = """
import dask
from gputui.presets import Job, Outcome, Preset

def boom():
    raise ValueError("boom")

def compute(job: Job) -> Outcome:
    return Outcome({"x": job.compute(dask.delayed(boom)())})

PRESET = Preset("fails", "Fail.", (), compute)
"""

pytestmark = pytest.mark.slow


def walks() -> dict[str, list[tuple[str, str]]]:
    """Return the steps of each walk, as the help lists them."""
    parts = re.split(r"^\*\*(.+?)\.\*\*", TOPIC.read_text(), flags=re.M)
    return {
        title: STEP.findall(text)
        for title, text in zip(parts[1::2], parts[2::2], strict=True)
        if STEP.search(text)
    }


@pytest.mark.parametrize("title", BOUNDS)
def test_a_walk_is_short(title: str) -> None:
    steps = walks()[title]
    files, functions = BOUNDS[title]
    assert 3 < len({file for file, _ in steps}) <= files and len(steps) <= functions


def test_every_step_of_the_walks_is_called(gputui: Command, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    folders = [str(Path(module.__file__).parent) for module in (tracing, fakes)]
    gputui.env["PYTHONPATH"] = os.pathsep.join(folders)
    gputui.env["GPUTUI_FAKE_NVML"] = json.dumps({"gpus": 1})
    gputui.env["GPUTUI_TRACE"] = str(notes)
    (gputui.folder / "mine.py").write_text(FAILS)
    hosts = "localhost gpus=none workers=2 nthreads=1 memory=1GiB"
    assert gputui("up", hosts, "--name", "lab", "--workers", "1").returncode == 0
    screen = gputui.open("attach", "lab")
    screen.sees("workers 1/1", "cpu0")
    screen.press("+", "start 1")
    screen.press("y", "workers 2/2", "cpu1")
    run = "--attach", "lab", "--quiet", "--run"
    assert gputui(*run, "svd", "-p", "rows=20000", "-p", "cols=50").returncode == 0
    assert gputui(*run, f"{gputui.folder}/mine.py:PRESET").returncode == 1
    screen.press("6", "fails")
    screen.press("\r", "boom")
    gputui("down", "lab")
    lines = [line for path in notes.iterdir() for line in path.read_text().splitlines()]
    called = {(line.split()[1], line.split()[2]) for line in lines}
    missing = {title: [s for s in steps if s not in called] for title, steps in walks().items()}
    assert not any(missing.values()), missing
