"""A run that goes on, being recorded: its record and its log, begun, added to and ended.

A computation is worth more than its record: where the disk takes no more, that is said once, and
the run goes on without.
"""

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from gputui.model.snapshot import RunState
from gputui.runs.records import RunRecord, ended, reserve, write, write_last

MOST_BYTES = 10 * 2**20
"""The maximum size of a log; later output is dropped."""
ROOM_AT_END = 2**16
"""How a run ended is written all the same."""


class Recording:
    """Writes what happens in a run; calls `warn` when that cannot be done."""

    def __init__(self, record: RunRecord, warn: Callable[[str], None]) -> None:
        self.record = record
        self._warn = warn
        self._warned = False
        self._timings: dict[str, float] = {}
        self._stage = ""
        self._stage_from = 0.0
        self._log = RunLog(record.log)
        with self._writing():
            write(record)
            reserve(record)

    def note(self, *lines: str, at: float | None = None) -> None:
        """Add lines to the log."""
        with self._writing():
            self._log.write(*lines, at=at)

    def stage(self, name: str) -> None:
        """Note that the run is at another stage now; how long each took is recorded."""
        self._end_stage()
        self._stage, self._stage_from = name, time.monotonic()
        self.note(name)

    def keep(self, result: Mapping[str, Any]) -> None:
        """Record the result before printing or saving it, which may fail."""
        self.record = replace(self.record, result=dict(result))
        with self._writing():
            write(self.record)

    def end(self, state: RunState, **outcome: Any) -> None:
        """Record how the run ended, as `records.ended` takes it; what comes after changes nothing.

        A Ctrl-C while the cluster of a run that is done stops is no end of that run.
        """
        if self.record.state.ended:
            return
        self._end_stage()
        self.record = ended(self.record, state, timings=self._timings, **outcome)
        trace = self.record.failure.traceback if self.record.failure else ()
        said = f"{state} {self.record.error}".rstrip().splitlines()
        with self._writing():
            self._log.write_last(*(f"traceback | {line}" for line in trace), *said)
        with self._writing():
            write_last(self.record)

    def _end_stage(self) -> None:
        if self._stage:
            elapsed_s = time.monotonic() - self._stage_from
            self._timings[self._stage] = self._timings.get(self._stage, 0.0) + elapsed_s

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if not self._warned:
                self._warned = True
                why = error.strerror or error
                self._warn(f"this run is not recorded: {self.record.folder}: {why}")


class RunLog:
    """`log.txt` in the run's folder, which only this user can read; open only while it writes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._room = MOST_BYTES

    def write(self, *lines: str, at: float | None = None) -> None:
        """Write lines that belong to one moment, `at` or now; raises OSError."""
        if self._room <= 0:
            return
        stamp = _stamp(time.time() if at is None else at)
        text = "".join(f"{stamp}  {line}\n" for line in lines)
        room, self._room = self._room, self._room - len(text)
        if self._room <= 0:
            text = text[:room].rstrip("\n") + f"\n{stamp}  this log is full\n"
        self._append(text)

    def write_last(self, *lines: str) -> None:
        """Write lines, full or not; raises OSError."""
        self._room = max(self._room, ROOM_AT_END)
        self.write(*lines)

    def _append(self, text: str) -> None:
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace") as file:
            file.write(text)


def _stamp(moment: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(moment)) + f".{int(moment % 1 * 1000):03}"
