"""Memory that runs out on real workers: which one, how much it had, and what to change."""

import json
import re
from pathlib import Path

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
    row = 8000 / values["times_too_low"]
    fits = int(machine.smallest_bytes / row)
    return Memory(int(values["chunk_rows"] * row), f"use chunk_rows ≤ {fits:,}")

PRESET = Preset(
    "hungry",
    "takes more than it says",
    (Parameter("chunk_rows", int, 200_000, ""), Parameter("times_too_low", int, 16, "")),
    compute,
    estimate=estimate,
)
"""


def hungry(folder: Path) -> str:
    path = folder / "mine.py"
    path.write_text(HUNGRY)
    return f"{path}:PRESET"


@pytest.mark.slow
def test_a_run_too_large_for_its_workers_is_refused_with_what_would_fit(gputui: Command) -> None:
    done = gputui(HERE, "--run", hungry(gputui.folder), "-p", "times_too_low=1")
    assert done.returncode == 1
    assert (
        "hungry would take 1.5 GiB on each worker, and the smallest worker's share of memory has "
        "200.0 MiB to give\n  use chunk_rows ≤ 26,214"
    ) in done.stderr


@pytest.mark.slow
def test_a_task_that_kills_its_workers_by_its_memory_says_so_with_what_to_change(
    gputui: Command,
) -> None:
    done = gputui(HERE, "--run", hungry(gputui.folder), "--json")
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


@pytest.mark.slow
def test_a_task_that_gets_no_memory_names_its_worker_and_what_it_had(gputui: Command) -> None:
    sizes = ("-p", "chunk_rows=1e12", "-p", "times_too_low=1e10")
    done = gputui(HERE, "--run", hungry(gputui.folder), *sizes, "--json", "--quiet")
    assert done.returncode == 1, done.stderr
    said = json.loads(done.stdout)["error"]["message"]
    where = "on localhost:cpu[01], where a task may take 200.0 MiB"
    assert re.match(f"hungry ran out of memory {where}: Unable to allocate", said)
    assert said.endswith("\n  use chunk_rows ≤ 500,000,000,000")


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
