"""The process that started a head: the cluster ends with it, until it says that the cluster stays.

Its end shows in two things: stdin, a pipe that it holds, and its pid. A child that it forked may
hold the pipe for longer than it lives.
"""

import asyncio
import contextlib
import os
from collections.abc import Callable

from gputui.errors import ProtocolError
from gputui.protocol.codec import decode
from gputui.protocol.starter import Keep

READ_BYTES = 4096


class Starter:
    """Calls `gone` in the running loop when the starter ends and has not said `Keep`."""

    def __init__(self, pid: int, gone: Callable[[], None]) -> None:
        self._gone = gone
        self._watched = [0]
        os.set_blocking(0, False)
        with contextlib.suppress(OSError):  # before Linux 5.3: stdin only
            self._watched.append(os.pidfd_open(pid))
        for descriptor in self._watched:
            asyncio.get_running_loop().add_reader(descriptor, self._look)
        if os.getppid() != pid:  # it ended before this process could watch it
            self._look()

    def _look(self) -> None:
        """Take what the starter said last, before its end is believed."""
        try:
            said = os.read(0, READ_BYTES)
        except BlockingIOError:  # it ended; a child of its own holds the pipe
            said = b""
        for descriptor in self._watched:
            asyncio.get_running_loop().remove_reader(descriptor)
        for descriptor in self._watched[1:]:
            os.close(descriptor)
        if not _keeps(said):
            self._gone()


def _keeps(said: bytes) -> bool:
    try:
        return isinstance(decode(said, Keep), Keep)
    except ProtocolError:
        return False
