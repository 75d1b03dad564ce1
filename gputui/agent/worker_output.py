"""A worker's output: always drained, the last lines kept, sent on while a head follows.

A worker that prints 100 MB neither waits for anybody nor fills the agent's memory.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterator

from gputui.process.child import PipeLines
from gputui.protocol.agent import FromAgent
from gputui.protocol.shared import LogLines

KEPT_LINES = 1000
SEND_EVERY_S = 0.25
SENDINGS_AT_ONCE = 4
"""Delay after silence: output of a short task arrives before its run ends."""
LINES_A_MESSAGE = 64
"""However long they are, so many fit into a line of the channel."""
DRAIN_READS = 64
LINES_A_SENDING = 200
"""More than these in one interval are counted, not sent."""


class WorkerOutput:
    """The output of one worker, over all its restarts."""

    def __init__(self, worker: str, send: Callable[[FromAgent], None]) -> None:
        self.following = False
        self._worker = worker
        self._send = send
        self._kept: deque[str] = deque(maxlen=KEPT_LINES)
        self._unsent: deque[str] = deque(maxlen=LINES_A_SENDING)
        self._dropped = 0
        self._own = 0
        """The number of lines since the pipe was opened: those before are of an earlier process."""
        self._pipe: PipeLines | None = None
        self._sending: asyncio.TimerHandle | None = None
        self._due_at = 0.0

    def open(self, descriptor: int) -> None:
        """Read the output of another process from a pipe, which is the output's own from now on."""
        self.close()
        self._own = 0
        self._pipe = PipeLines(descriptor, self._keep)

    def drain(self) -> None:
        """Read the last output of an ended worker, without waiting for processes that still
        print."""
        for _ in range(DRAIN_READS):
            if self._pipe is None or not self._pipe.read():
                return

    def tail(self, count: int) -> tuple[str, ...]:
        """Return the last lines of the present process, or of the last one."""
        lines = list(self._kept)[max(0, len(self._kept) - self._own) :]
        if self._pipe is not None and self._pipe.partial:
            lines.append(self._pipe.partial.decode("utf-8", "replace"))
        return tuple(lines[-count:])

    def follow(self, on: bool, history: int) -> None:
        """Begin to send lines, after the last `history`; or stop.

        Lines that wait to be sent are among the last ones.
        """
        self.following = on
        if on and history:
            self._unsent.clear()
            for lines in _pieces(tuple(self._kept)[-history:]):
                self._send(LogLines(self._worker, lines, time.time(), earlier=True))

    def close(self) -> None:
        """Close the pipe and keep its output, an unfinished line as a line."""
        if self._pipe is not None:
            self._pipe.close()

    def _keep(self, text: str) -> None:
        """Keep a line, and send it soon where a head follows."""
        self._kept.append(text)
        self._own += 1
        if self.following:
            self._dropped += len(self._unsent) == LINES_A_SENDING
            self._unsent.append(text)
            if self._sending is None:
                loop = asyncio.get_running_loop()
                self._sending = loop.call_later(self._wait_s(), self._send_lines)

    def _wait_s(self) -> float:
        """Return when the next sending is due: one every so often, but the first few at once."""
        now = time.monotonic()
        self._due_at = max(self._due_at, now - SENDINGS_AT_ONCE * SEND_EVERY_S) + SEND_EVERY_S
        return max(0.0, self._due_at - now)

    def _send_lines(self) -> None:
        self._sending = None
        for lines in _pieces(tuple(self._unsent)):
            self._send(LogLines(self._worker, lines, time.time(), self._dropped))
            self._dropped = 0
        self._unsent.clear()


def _pieces(lines: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield these lines, as many at a time as a message may have."""
    for start in range(0, len(lines), LINES_A_MESSAGE):
        yield lines[start : start + LINES_A_MESSAGE]
