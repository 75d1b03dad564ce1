"""What a worker prints: always drained, the last of it kept, sent on while a head follows.

A worker that prints 100 MB neither waits for anybody nor fills the agent's memory.
"""

import asyncio
import os
import time
from collections import deque
from collections.abc import Callable

from gputui.protocol.agent import FromAgent
from gputui.protocol.shared import LogLines

KEPT_LINES = 1000
LINE_CHARACTERS = 2000
READ_BYTES = 2**18
SEND_EVERY_S = 0.25
SENDINGS_AT_ONCE = 4
"""After a silence: what a task of a short run prints is there before the run has ended."""
LINES_A_SENDING = 200
"""More than these in one interval are counted, not sent."""


class Output:
    """The output of one worker, over all its restarts."""

    def __init__(self, worker: str, send: Callable[[FromAgent], None]) -> None:
        self.following = False
        self._worker = worker
        self._send = send
        self._kept: deque[str] = deque(maxlen=KEPT_LINES)
        self._unsent: deque[str] = deque(maxlen=LINES_A_SENDING)
        self._dropped = 0
        self._partial = b""
        self._descriptor: int | None = None
        self._sending: asyncio.TimerHandle | None = None
        self._due_at = 0.0

    def open(self) -> int:
        """Return the writing end of a new pipe, for a worker's stdout and stderr."""
        self.close()
        self._descriptor, write = os.pipe()
        os.set_blocking(self._descriptor, False)
        asyncio.get_running_loop().add_reader(self._descriptor, self.read)
        return write

    def read(self) -> None:
        """Take what is there."""
        if self._descriptor is None:
            return
        try:
            data = os.read(self._descriptor, READ_BYTES)
        except BlockingIOError:
            return
        if not data:
            self.close()
            return
        *lines, self._partial = (self._partial + data).split(b"\n")
        self._partial = self._partial[-LINE_CHARACTERS:]
        for line in lines:
            self._keep(line[:LINE_CHARACTERS].decode("utf-8", "replace"))
        if self._unsent and self._sending is None:
            self._sending = asyncio.get_running_loop().call_later(self._wait_s(), self._send_lines)

    def tail(self, count: int) -> tuple[str, ...]:
        """Return the last lines."""
        last = self._partial.decode("utf-8", "replace")
        return tuple([*self._kept, *([last] if last else [])][-count:])

    def follow(self, on: bool, history: int) -> None:
        """Begin to send lines, the last `history` first; or stop."""
        self.following = on
        if on and self._kept:
            last = tuple(self._kept)[-history:]
            self._send(LogLines(self._worker, last, time.time(), earlier=True))

    def close(self) -> None:
        """Close the pipe; what was printed is kept."""
        if self._descriptor is not None:
            asyncio.get_running_loop().remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = None

    def _keep(self, line: str) -> None:
        self._kept.append(line)
        if not self.following:
            return
        self._dropped += len(self._unsent) == LINES_A_SENDING
        self._unsent.append(line)

    def _wait_s(self) -> float:
        """Return when the next sending is due: one every so often, but the first few at once."""
        now = time.monotonic()
        self._due_at = max(self._due_at, now - SENDINGS_AT_ONCE * SEND_EVERY_S) + SEND_EVERY_S
        return max(0.0, self._due_at - now)

    def _send_lines(self) -> None:
        self._sending = None
        self._send(LogLines(self._worker, tuple(self._unsent), time.time(), self._dropped))
        self._unsent.clear()
        self._dropped = 0
