"""Processes that this one did not start: a worker of the forkserver's, and what its tasks start."""

import contextlib
import os
from typing import Self

from gputui.model.frozen import frozen
from gputui.process import procfs
from gputui.process.lifetime import kill_group

WORKER_MARK = "GPUTUI_WORKER"
"""Set to a worker's pid in its environment: it marks what its tasks start."""


@frozen
class Handle:
    """A process of another parent, which a later process of the same pid is never taken for."""

    pid: int
    start_ticks: int
    """When it was started, as /proc has it."""

    @classmethod
    def of(cls, pid: int) -> Self:
        """Return the handle of a child that is not reaped yet."""
        stat = procfs.process_stat(pid)
        assert stat is not None, "a child is there until its parent reaps it"
        return cls(pid, stat.start_ticks)

    @property
    def lives(self) -> bool:
        """Whether its parent has not reaped it yet."""
        stat = procfs.process_stat(self.pid)
        return stat is not None and stat.start_ticks == self.start_ticks

    def send_signal(self, number: int) -> None:
        """Send it a signal; nothing when it has ended."""
        if self.lives:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill_group(self) -> None:
        """Kill it and the group that it leads; nothing when it has ended: its parent did that."""
        if self.lives:
            kill_group(self.pid)


def worker_of(pid: int) -> int | None:
    """Return the pid of the worker whose task started this process, None where it is unknown."""
    mark = f"{WORKER_MARK}=".encode()
    pids = (each.removeprefix(mark) for each in procfs.environment(pid) if each.startswith(mark))
    return next((int(each) for each in pids if each.isdigit()), None)
