"""A task that ends its workers by itself: a run that it fails says how they ended."""

import json

import pytest

from tests.system.conftest import Command

LEAVES = """
import os
from gputui.presets import Outcome, Preset

def leave():
    print("these are the last words", flush=True)
    os._exit(0)

def compute(job):
    return Outcome({"never": job.results([job.submit(leave)])})

PRESET = Preset("leaves", "ends its workers", (), compute)
"""


@pytest.mark.slow
def test_a_task_that_leaves_is_named_with_its_key_and_last_lines_after_three_workers(
    gputui: Command,
) -> None:
    path = gputui.folder / "mine.py"
    path.write_text(LEAVES)
    done = gputui("localhost gpus=none workers=2", "--run", f"{path}:PRESET", "--json")
    assert done.returncode == 1, done.stderr
    said = json.loads(done.stdout)["error"]["message"]
    assert said.startswith("leaves lost 3 workers one after another, each at the same task, leave-")
    assert "crashed: exit code 0: a task or a library ended it (os._exit): these are the" in said
    shown = gputui("runs", "show", "last").stdout
    assert "os._exit" in shown and "these are the last words" in shown, shown
