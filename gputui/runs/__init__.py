"""A run, from its request to its record.

`run.py` takes a request from a cluster to its end (`progress.py` shows how far it is, `records.py`
keeps what became of it), with `preset_run.py` or `script_run.py` inside: `execution.py` computes a
preset with a Dask client, `script.py` is the process of a script, `modules.py` sends what lies next
to either. `output.py` and `text.py` are what is made of a result.

What is exported here imports no Dask, and each drawing library only where it draws.
"""

from gputui.folders import runs_dir
from gputui.runs.execution import RunResult, execute
from gputui.runs.output import FIGURE_SUFFIXES, draw_file, save_arrays
from gputui.runs.records import (
    Recording,
    RunRecord,
    find,
    new_record,
    prune,
    recorded,
)
from gputui.runs.text import brief, text

__all__ = [
    "FIGURE_SUFFIXES",
    "Recording",
    "RunRecord",
    "RunResult",
    "brief",
    "draw_file",
    "execute",
    "find",
    "new_record",
    "prune",
    "recorded",
    "runs_dir",
    "save_arrays",
    "text",
]
