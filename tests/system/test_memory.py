"""Memory that runs out on real workers: which one, how much it had, and what to change."""

import json

import pytest

from tests.system.conftest import Command

HERE = "localhost gpus=none workers=2 nthreads=1 memory=400MiB"

HUNGRY = """
import time
import numpy as np
from gputui.presets import Memory, Outcome, Parameter, Preset

def fill(rows):
    held = np.ones(rows * 1000)
    time.sleep(600)
    return float(held.sum())

def compute(job):
    return Outcome({"sum": job.results([job.submit(fill, job["chunk_rows"])])[0]})

def estimate(values, machine):
    row = 500  # a sixteenth of what it takes
    fits = machine.smallest_bytes // row
    return Memory(values["chunk_rows"] * row, f"use chunk_rows ≤ {fits:,}")

PRESET = Preset(
    "hungry",
    "takes more than it says",
    (Parameter("chunk_rows", int, 200_000, ""),),
    compute,
    estimate=estimate,
)
"""


@pytest.mark.slow
def test_a_task_that_kills_its_workers_by_its_memory_says_so_with_what_to_change(
    gputui: Command,
) -> None:
    (gputui.folder / "mine.py").write_text(HUNGRY)
    done = gputui(HERE, "--run", "./mine.py:PRESET", "--json")
    assert done.returncode == 1, done.stderr
    said = json.loads(done.stdout)["error"]["message"].splitlines()
    assert said[0].startswith("hungry lost 3 workers one after another, each at the same task")
    assert said[-1] == "  where memory ran out, use chunk_rows ≤ 100,000"
    assert {line.strip() for line in said[1:-1]} <= {
        f"localhost:cpu{index} crashed: it reached its memory limit of 400 MiB; "
        "give it more with memory=, or use smaller chunks"
        for index in (0, 1)
    }
    record = json.loads(gputui("runs", "show", "last", "--json").stdout)
    assert (record["state"], record["restarts"] >= 1) == ("failed", True)


BREAKS = """
import os
from pathlib import Path
from gputui.presets import Outcome, Preset

def end(flag):
    Path(flag).touch()
    os._exit(1)

def compute(job):
    return Outcome({"none": job.results([job.submit(end, "{flag}")])[0]})

PRESET = Preset("breaks", "ends its worker, and lets none start again", (), compute)
"""


@pytest.mark.slow
def test_a_run_ends_when_its_last_worker_is_given_up(gputui: Command) -> None:
    flag, preset = gputui.folder / "flag", gputui.folder / "breaks.py"
    preset.write_text(BREAKS.replace("{flag}", str(flag)))
    loaded = gputui.folder / "loaded.py"
    loaded.write_text(f"import os\nassert not os.path.exists({str(flag)!r}), 'it is broken now'\n")
    gputui.env["DASK_DISTRIBUTED__WORKER__PRELOAD"] = str(loaded)
    gputui.env["DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES"] = "100"
    one = HERE.replace("workers=2", "workers=1")
    done = gputui(one, "--run", f"{preset}:PRESET", "--quiet")
    assert done.returncode == 1
    why = "localhost:cpu0: exit code 1: AssertionError: it is broken now"
    assert f"gputui: no worker is left\n  {why}" in done.stderr
