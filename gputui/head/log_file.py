"""The head's log: a file for each cluster name, rotated by size while the head runs.

What is written to stdout and stderr goes to it, too. Logs that no head has written to for a month
are removed when the next head starts.
"""

import logging
import os
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any

from gputui.folders import sweep
from gputui.model.plain_text import safe, safe_lines

FILE_BYTES = 5_000_000
"""A file holds so much at most."""
FILES_BEFORE = 2
"""Rotated files that are kept, as `.1` and `.2`."""
KEPT_S = 30 * 86400.0


def log_folder() -> Path:
    """Return where heads keep their logs, in the user's state folder; made where it is not."""
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    folder = Path(state).expanduser() / "gputui" / "log"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def log_to_file(name: str) -> "LogFile":
    """Log to the file of a cluster's name; the one before is kept. Raises OSError."""
    folder = log_folder()
    sweep(folder, "*.log*", KEPT_S)
    log = LogFile(folder / f"{name}.log")
    log.setFormatter(SafeFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(handlers=[log], level=logging.INFO)
    logging.getLogger("asyncssh").setLevel(logging.WARNING)
    return log


class SafeFormatter(logging.Formatter):
    """Writes a record in a line, whatever is in it; a traceback follows in lines of its own."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """Return the first line."""
        return safe(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:  # noqa: N802 - logging's name
        """Return the traceback, indented."""
        return "    " + safe_lines(super().formatException(ei)).replace("\n", "\n    ")


class LogFile(RotatingFileHandler):
    """A log that only this user can read, 0600."""

    def __init__(self, path: Path, file_bytes: int = FILE_BYTES) -> None:
        self._holds_output = False
        super().__init__(path, maxBytes=file_bytes, backupCount=FILES_BEFORE, delay=True)
        if path.exists():
            self.doRollover()

    def take_output(self) -> None:
        """Redirect this process's stdout and stderr to the file, also after rotations."""
        self._holds_output = True
        self.stream = self.stream or self._open()
        os.dup2(self.stream.fileno(), 1)
        os.dup2(1, 2)

    def doRollover(self) -> None:  # noqa: N802 - logging's name
        """Begin a new file, and keep the one before."""
        super().doRollover()
        if self._holds_output:
            self.take_output()

    def _open(self) -> TextIOWrapper:
        Path(self.baseFilename).touch(mode=0o600)
        return super()._open()
