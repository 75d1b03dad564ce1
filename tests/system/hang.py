"""A preset with one task, which hangs the first time in a way of choice, for tests that kill."""

import ctypes
import os
import subprocess
import time
from pathlib import Path

from gputui.presets import Outcome, Parameter, Preset
from gputui.presets.job import Job

FOREVER_S = 600
VALUE = 7


def compute(job: Job) -> Outcome:
    task = job.submit(hang, job["task"], job["folder"])
    return Outcome({"value": job.results([task])[0]})


def hang(task: str, folder: str) -> int:
    """Write this worker's pid to the file `hangs`, and hang until there is a file `go`.

    Nothing hangs where `hangs` is there already, nor an easy task.
    """
    if task == "easy":
        return VALUE
    try:
        with Path(folder, "hangs").open("x") as mark:
            mark.write(str(os.getpid()))
    except FileExistsError:
        return VALUE
    if task == "child":
        subprocess.Popen(["sleep", str(FOREVER_S)])
        subprocess.Popen(["sleep", str(FOREVER_S)], start_new_session=True)
    if task == "gil":
        ctypes.PyDLL(None).sleep(FOREVER_S)
    while not Path(folder, "go").exists():
        time.sleep(0.1)
    return VALUE


PRESET = Preset(
    name="hang",
    summary="hang the first time, return the second",
    parameters=(
        Parameter("task", str, "easy", "", choices=("easy", "wait", "gil", "child")),
        Parameter("folder", str, "", ""),
    ),
    compute=compute,
)
