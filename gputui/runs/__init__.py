"""A run, from its request to its record.

`request.py` is what is to be computed. `run.py` takes it from a cluster to its end (`progress.py`
shows how far it is), with `preset_run.py` or `script_run.py` inside: `execution.py` computes a
preset with a Dask client, `script/` is the process of a script. `recording.py` and `records.py`
keep it and its log; `output.py`, `text.py`, `figure_files.py` and `arrays.py` are what becomes of
a result.

What is exported here imports no Dask, and each drawing library only where it draws.
"""

from typing import TYPE_CHECKING, Any

from gputui.runs.arrays import save_arrays
from gputui.runs.figure_files import FIGURE_SUFFIXES, draw_file, has_matplotlib
from gputui.runs.recording import Recording
from gputui.runs.records import (
    RUN_VARIABLE,
    RunRecord,
    find,
    new_id,
    new_record,
    prune,
    recorded,
    runs_dir,
)
from gputui.runs.text import brief, text

if TYPE_CHECKING:
    from gputui.runs.execution import RunResult, execute

__all__ = [
    "FIGURE_SUFFIXES",
    "RUN_VARIABLE",
    "Recording",
    "RunRecord",
    "RunResult",
    "brief",
    "draw_file",
    "execute",
    "find",
    "has_matplotlib",
    "new_id",
    "new_record",
    "prune",
    "recorded",
    "runs_dir",
    "save_arrays",
    "text",
]


def __getattr__(name: str) -> Any:
    if name in ("RunResult", "execute"):
        from gputui.runs import execution

        return getattr(execution, name)
    raise AttributeError(f"module 'gputui.runs' has no attribute {name!r}")
