"""A process that another one is the parent of: signalled by pidfd, where the kernel has them."""

import contextlib
import os
import select
import signal
from collections.abc import Sequence

from gputui.process.lifetime import kill_group


def open_pidfds(pid: int) -> list[int]:
    """Return a descriptor of a child that is not reaped yet; none before Linux 5.3."""
    try:
        return [os.pidfd_open(pid)]
    except OSError:
        return []


class Handle:
    """A process of another parent, which a later process of the same pid is never taken for.

    Where the kernel has no pidfds it is the pid alone.
    """

    def __init__(self, pid: int, pidfds: Sequence[int]) -> None:
        """Take over the descriptor that `open_pidfds` gave the parent."""
        self.pid = pid
        self._pidfd = pidfds[0] if pidfds else None

    @property
    def lives(self) -> bool:
        """Whether it has not ended yet."""
        if self._pidfd is None:
            return True
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        return not poll.poll(0)

    def send_signal(self, number: signal.Signals) -> None:
        """Send it a signal; nothing when it has ended."""
        with contextlib.suppress(ProcessLookupError):
            if self._pidfd is None:
                os.kill(self.pid, number)
            else:
                signal.pidfd_send_signal(self._pidfd, number)

    def kill_group(self) -> None:
        """Kill it and the group that it leads; nothing when it has ended: its parent did that."""
        if self.lives:
            kill_group(self.pid)

    def close(self) -> None:
        """Close the descriptor."""
        if self._pidfd is not None:
            os.close(self._pidfd)
            self._pidfd = None
