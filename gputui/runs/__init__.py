"""Records of runs, and what becomes of a result: text, pictures, saved arrays.

A `Recording` goes along with a run; `recorded` and `find` are for `gputui runs`.
`text` is what people read on stdout, `draw` and `draw_file` the figure, `save_arrays` the data.
No Dask is imported here, and each drawing library only where it draws.
"""

from gputui.runs.arrays import save_arrays
from gputui.runs.figures import FIGURE_SUFFIXES, draw, draw_file, has_matplotlib, has_plotext
from gputui.runs.recording import Recording
from gputui.runs.records import (
    RUN_VARIABLE,
    RunRecord,
    find,
    new_id,
    new_record,
    recorded,
    runs_dir,
)
from gputui.runs.text import brief, text

__all__ = [
    "FIGURE_SUFFIXES",
    "RUN_VARIABLE",
    "Recording",
    "RunRecord",
    "brief",
    "draw",
    "draw_file",
    "find",
    "has_matplotlib",
    "has_plotext",
    "new_id",
    "new_record",
    "recorded",
    "runs_dir",
    "save_arrays",
    "text",
]
