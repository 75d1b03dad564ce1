"""`python -m gputui.head`: reads its configuration, one JSON line, on stdin; then runs a cluster.

On stdout it says `Opened` or `Refused`, once; after that its output goes to its log: a file for
each cluster name, rotated by size while the head runs, and removed a month after the last one has
written to it. It runs in a session of its own, and lives as long as its starter, unless that keeps
it, or until it is asked to stop.
"""

import asyncio
import contextlib
import io
import logging
import os
import random
from collections.abc import Callable
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any

from gputui.errors import GputuiError, ProtocolError
from gputui.folders import state_folder, sweep
from gputui.model.plain_text import safe, safe_lines
from gputui.model.snapshot import Severity
from gputui.process.lifetime import END_SIGNALS, dump_no_core, look_rarely, raise_file_limit
from gputui.protocol.shared import Refused
from gputui.protocol.starter import ConfigureHead, Keep, Opened
from gputui.protocol.typed_codec import decode, encode

FILE_BYTES = 5_000_000
"""A file holds so much at most."""
FILES_BEFORE = 2
"""Rotated files that are kept, as `.1` and `.2`."""
KEPT_S = 30 * 86400.0


def log_folder() -> Path:
    """Return where heads keep their logs, in the user's state folder; made where it is not."""
    folder = state_folder() / "log"
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
        super().__init__(path, maxBytes=file_bytes, backupCount=FILES_BEFORE, delay=True)
        if path.exists():
            self.doRollover()

    def take_output(self) -> None:
        """Redirect this process's stdout and stderr to the file, and with it to the older ones."""
        self.stream = self.stream or self._open()
        os.dup2(self.stream.fileno(), 1)
        os.dup2(1, 2)

    def _open(self) -> TextIOWrapper:
        Path(self.baseFilename).touch(mode=0o600)
        return super()._open()


READ_BYTES = 4096
NICENESS = 10
"""Of a head that is to leave others their CPUs."""


def watch_starter(pid: int, gone: Callable[[], None]) -> None:
    """Have `gone` called when the process that started this one ends without `Keep`.

    Its end shows in two things: stdin, a pipe that it holds, and its pid. A child that it forked
    may hold the pipe for longer than it lives.
    """
    loop, watched = asyncio.get_running_loop(), [0]
    os.set_blocking(0, False)
    with contextlib.suppress(OSError):  # before Linux 5.3: stdin only
        watched.append(os.pidfd_open(pid))

    def look() -> None:
        """Read the starter's last message before its end counts."""
        said = b""
        with contextlib.suppress(BlockingIOError):  # it ended; a child of its own holds the pipe
            said = os.read(0, READ_BYTES)
        for descriptor in watched:
            loop.remove_reader(descriptor)
        for descriptor in watched[1:]:
            os.close(descriptor)
        try:
            decode(said, Keep)
        except ProtocolError:
            gone()

    for descriptor in watched:
        loop.add_reader(descriptor, look)
    if os.getppid() != pid:  # it ended before this process could watch it
        look()


def keep_to(cpus: int) -> None:
    """Use at most so many CPUs, and those after others, with all that this process starts."""
    usable = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, random.sample(usable, min(cpus, len(usable))))
    os.nice(NICENESS)


def main() -> int:
    """Run one cluster; returns the exit status."""
    dump_no_core()
    raise_file_limit()
    try:
        return asyncio.run(_run())
    except GputuiError as error:
        _say(Refused(0, str(error)))
        return int(error.exit_code)


async def _run() -> int:
    look_rarely()
    from gputui.head.requests import head_of  # most of the start: its garbage is not worth a look

    config = decode(io.FileIO(0, closefd=False).readline(), ConfigureHead)
    head = head_of(config)
    if config.head_cpus and not head.any_local:
        keep_to(config.head_cpus)
    look_rarely()
    log = None
    try:
        log = log_to_file(head.name)
    except OSError as error:  # a cluster is worth more than its log
        head.tell(Severity.WARNING, "cluster", "unlogged", f"the head writes no log: {error}")
    loop = asyncio.get_running_loop()
    for number in END_SIGNALS:
        loop.add_signal_handler(number, head.stop, f"the head was sent {number.name}")
    watch_starter(config.starter_pid, lambda: head.stop("the process that started it is gone"))
    await head.run(lambda socket: _say(Opened(socket), log))
    return 0


def _say(message: Opened | Refused, log: LogFile | None = None) -> None:
    """Answer the starter, then redirect stdout and stderr to the log."""
    os.write(1, encode(message))
    if log is not None:
        log.take_output()
        return
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)


if __name__ == "__main__":
    os._exit(main())
