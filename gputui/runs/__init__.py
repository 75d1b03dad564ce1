"""Records of runs, and what becomes of a result: text, pictures, saved arrays.

`begin` when a run starts, `end` when it is over; `recorded` and `find` for `gputui runs`.
`text` is what people read on stdout, `draw` and `draw_png` the figure, `save_arrays` the data.
No Dask is imported here, and each drawing library only where it draws.
"""

from gputui.runs.arrays import save_arrays
from gputui.runs.figures import draw, draw_png
from gputui.runs.records import (
    RUN_VARIABLE,
    RunRecord,
    begin,
    end,
    find,
    new_id,
    recorded,
    runs_dir,
)
from gputui.runs.text import text

__all__ = [
    "RUN_VARIABLE",
    "RunRecord",
    "begin",
    "draw",
    "draw_png",
    "end",
    "find",
    "new_id",
    "recorded",
    "runs_dir",
    "save_arrays",
    "text",
]
