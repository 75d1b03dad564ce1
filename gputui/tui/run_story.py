"""The recorded runs, for the screen: those of earlier clusters, and how a run went.

Reading takes a disk's time: it is for a thread.
"""

import contextlib
import json
import os
import shlex
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from gputui.model.snapshot import RunStatus
from gputui.runs import RunRecord, recorded, runs_dir
from gputui.runs.records import LOG
from gputui.tui.widgets.logbook import message_of

MOST_RESULT = 2**18
"""Characters of a result that are kept for a run's page."""
READ_BYTES = 2**17
"""Of the end of a log."""
TRACEBACK = "traceback | "
"""Begins the lines of a traceback in a run's log."""
LINES = 8
TRACEBACK_LINES = 14


@dataclass(frozen=True, slots=True)
class Story:
    """A run's course: its timings, its log, and the lines that explain its end."""

    timings: tuple[tuple[str, float], ...] = ()
    """Stage and seconds."""
    traceback: tuple[str, ...] = ()
    log: tuple[str, ...] = ()
    """The last lines of its own."""
    worker: str = ""
    """Whose lines say most of how it ended: the one that its error names, else the last to
    print; "" for none."""
    worker_log: tuple[str, ...] = ()


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


def status_of(record: RunRecord) -> RunStatus:
    """Convert a record to a run's status."""
    result = json.dumps(dict(record.result)) if record.result else ""
    return RunStatus(
        id=record.id,
        preset=record.preset,
        parameters=tuple(
            (name, _typed(value)) for name, value in record.parameters.items() if value != []
        ),
        state=record.state,
        started_at=record.started_at,
        ended_at=record.ended_at,
        summary=record.words,
        result_json=result if len(result) <= MOST_RESULT else "",
        restarts=record.restarts,
        error_type=record.error_type,
    )


def _typed(value: object) -> str:
    """Return a recorded parameter as it was typed; a script's arguments as a shell takes them."""
    if isinstance(value, list):
        return shlex.join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def story_of(run: RunStatus) -> Story:
    """Return how a run went, as far as it is recorded."""
    folder = runs_dir() / run.id
    try:
        with (folder / LOG).open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - READ_BYTES))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return Story()
    timings: dict[str, float] = {}
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        timings = json.loads((folder / "run.json").read_text())["timings"]
    return story_in(text.splitlines(), run.summary, tuple(timings.items()))


def story_in(
    lines: Iterable[str], error: str, timings: tuple[tuple[str, float], ...] = ()
) -> Story:
    """Sort the lines of a run's log into its story.

    >>> story = story_in(["12:00:00.1  computing", "12:00:00.2  h:gpu0 | out of memory"], "")
    >>> story.log, story.worker, story.worker_log
    (('12:00:00.1  computing',), 'h:gpu0', ('out of memory',))
    """
    own: deque[str] = deque(maxlen=LINES)
    traceback: deque[str] = deque(maxlen=TRACEBACK_LINES)
    printed: dict[str, deque[str]] = {}
    last = ""
    for line in lines:
        _, _, said = line.partition("  ")
        worker, bar, words = said.partition(" | ")
        if said.startswith(TRACEBACK):
            frame_line = said.removeprefix(TRACEBACK)
            if not is_carets(frame_line):
                traceback.append(frame_line)
        elif bar and ":" in worker and " " not in worker:
            printed.setdefault(worker, deque(maxlen=LINES)).append(message_of(words))
            last = worker
        else:
            own.append(line)
    named = [worker for worker in printed if worker in error]
    worker = named[-1] if named else last
    frames = from_a_frame(tuple(traceback))
    return Story(timings, frames, tuple(own), worker, tuple(printed.get(worker, ())))


def is_carets(line: str) -> bool:
    """Return whether a line of a traceback only points at the one above; wrapped, at nothing.

    >>> is_carets("      ~~^~~ "), is_carets("  return 1 / x"), is_carets("")
    (True, False, False)
    """
    return bool(line.strip()) and not line.strip(" ~^")


def from_a_frame(lines: tuple[str, ...]) -> tuple[str, ...]:
    """Return the end of a traceback from its first whole frame on.

    >>> from_a_frame(("    result = f()", '  File "a.py", line 1, in f', "ValueError: x"))
    ('  File "a.py", line 1, in f', 'ValueError: x')
    """
    whole = (n for n, line in enumerate(lines) if line.lstrip().startswith(("File ", "Traceback")))
    return lines[next(whole, 0) :]
