"""The recorded runs of earlier clusters, for the screen.

Reading takes a disk's time: it is for a thread.
"""

import contextlib
import os

from gputui.model.snapshot import RunStatus
from gputui.runs import recorded, runs_dir
from gputui.runs.records import status_of


class RecordedRuns:
    """All recorded runs, the newest first; read again only where that can say something new."""

    def __init__(self) -> None:
        self._written_at: tuple[int, ...] = ()
        self._runs: tuple[RunStatus, ...] = ()

    def __call__(self) -> tuple[RunStatus, ...]:
        """Return them as they are now; a run whose process is gone is lost."""
        written_at: tuple[int, ...] = ()
        with contextlib.suppress(OSError), os.scandir(runs_dir()) as folders:
            written_at = tuple(sorted(folder.stat().st_mtime_ns for folder in folders))
        if written_at != self._written_at or any(not run.state.ended for run in self._runs):
            self._runs = tuple(map(status_of, recorded()))
            self._written_at = written_at
        return self._runs
