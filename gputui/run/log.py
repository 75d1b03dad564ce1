"""The log of one run: `log.txt` in its folder, a line with its time for all that happened."""

import os
import time
from pathlib import Path

MOST_BYTES = 10 * 2**20
"""What is written past this is left out: a task may print without end."""


class RunLog:
    """Appends lines to a log that only this user can read; open only while it writes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._room = MOST_BYTES

    def write(self, *lines: str, at: float | None = None) -> None:
        """Write lines that belong to one moment, `at` or now; raises OSError."""
        if self._room <= 0:
            return
        stamp = _stamp(time.time() if at is None else at)
        text = "".join(f"{stamp}  {line}\n" for line in lines)
        self._room -= len(text)
        full = "" if self._room > 0 else f"{stamp}  this log is full\n"
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace") as file:
            file.write(text + full)


def _stamp(moment: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(moment)) + f".{int(moment % 1 * 1000):03}"
