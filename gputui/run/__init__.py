"""Records of runs, and what becomes of a result: text, pictures, saved arrays.

A `Recording` goes along with a run; `recorded` and `find` are for `gputui runs`.
`text` is what people read on stdout, `draw` and `draw_file` the figure, `save_arrays` the data.
No Dask is imported here, and each drawing library only where it draws.
"""

from typing import TYPE_CHECKING, Any

from gputui.run.arrays import save_arrays
from gputui.run.figures import FIGURE_SUFFIXES, draw, draw_file, has_matplotlib, has_plotext, shown
from gputui.run.recording import Recording
from gputui.run.records import (
    RUN_VARIABLE,
    RunRecord,
    find,
    new_id,
    new_record,
    prune,
    recorded,
    runs_dir,
)
from gputui.run.text import brief, text

if TYPE_CHECKING:
    from gputui.run.execution import RunResult, execute

__all__ = [
    "FIGURE_SUFFIXES",
    "RUN_VARIABLE",
    "Recording",
    "RunRecord",
    "RunResult",
    "brief",
    "draw",
    "draw_file",
    "execute",
    "find",
    "has_matplotlib",
    "has_plotext",
    "new_id",
    "new_record",
    "prune",
    "recorded",
    "runs_dir",
    "save_arrays",
    "shown",
    "text",
]


def __getattr__(name: str) -> Any:
    if name in ("RunResult", "execute"):
        from gputui.run import execution

        return getattr(execution, name)
    raise AttributeError(f"module 'gputui.run' has no attribute {name!r}")
