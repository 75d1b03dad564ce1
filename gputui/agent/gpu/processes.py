"""Identify the processes on a GPU: their user, command, and whether they are this cluster's.

A process is ours when it carries this cluster's id in its environment, or is one of the known
workers and frontends or a descendant of one. One that /proc does not show (another pid namespace,
hidepid) is of an unknown owner.
"""

import pwd
from collections.abc import Collection, Iterator
from functools import cache
from pathlib import Path

from gputui.model.readings import DeviceProcess, Owner
from gputui.process import procfs

COMMAND_CHARACTERS = 160
GENERATIONS = 64
"""How far up a process's ancestors are followed."""
MPS_DAEMON = "nvidia-cuda-mps-control"
"""Its command line names it; the kernel's name for a process has 15 characters."""


def unseen(pid: int) -> DeviceProcess:
    """Return a process of which nothing can be seen."""
    return DeviceProcess(pid, Owner.UNKNOWN, None, None, None)


class Processes:
    """Identifies processes for one cluster; may be asked from several threads."""

    def __init__(self, cluster_id: str) -> None:
        self.workers: Collection[int] = ()
        """The pids of the workers that run now."""
        self.frontends: Collection[int] = ()
        """The pids of the frontends that are attached now."""
        self._booted_at = procfs.boot_time()
        self._mark = f"GPUTUI_CLUSTER={cluster_id}".encode()

    def identify(self, pid: int) -> DeviceProcess:
        """Return a process with its owner, user and command, and without its memory."""
        stat, uid = procfs.process_stat(pid), procfs.owner(pid)
        if stat is None:
            return unseen(pid)
        return DeviceProcess(
            pid,
            Owner.OURS if self._is_ours(pid) else Owner.OTHER,
            None if uid is None else user_name(uid),
            _command(pid) or f"[{one_line(stat.command)}]",
            None,
            self._booted_at + stat.start_ticks / procfs.TICKS_PER_S,
        )

    def _is_ours(self, pid: int) -> bool:
        if self._mark in procfs.environment(pid):
            return True
        ours = {*self.workers, *self.frontends}
        for _ in range(GENERATIONS):
            if pid in ours:
                return True
            stat = procfs.process_stat(pid)
            if stat is None or stat.parent <= 1:
                return False
            pid = stat.parent
        return False


def mps_warnings(own: int) -> Iterator[str]:
    """Yield a warning for each MPS control daemon of another user than this one.

    Source: NVIDIA Multi-Process Service, CUDA_MPS_PIPE_DIRECTORY: a program that finds no daemon
    at its pipe runs without MPS.
    """
    for folder in Path("/proc").glob("[0-9]*"):
        pid = int(folder.name)
        stat, uid = procfs.process_stat(pid), procfs.owner(pid)
        if stat is None or uid is None or uid == own:
            continue
        if stat.command == MPS_DAEMON[:15] and MPS_DAEMON in _command(pid):
            yield (
                f"an MPS control daemon of {user_name(uid)} runs here (pid {pid}): workers that "
                "find its pipe join it, and may wait while it serves others; "
                "env.CUDA_MPS_PIPE_DIRECTORY=PATH, an empty folder, keeps them from it"
            )


@cache
def user_name(uid: int) -> str:
    """Return a user's name; its number where the machine knows no name."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _command(pid: int) -> str:
    """Return the start of a process's command line, "" for a kernel thread or a zombie."""
    try:
        return one_line(procfs.read_text(f"/proc/{pid}/cmdline"))[:COMMAND_CHARACTERS]
    except OSError:
        return ""


def one_line(raw: str) -> str:
    r"""Return a command line as one line that is safe to print on any terminal.

    >>> one_line("python\0-c\0import os\n\nprint(1)\0\x1b[2J\0")
    'python -c import os print(1) [2J'
    """
    return " ".join("".join(c if c.isprintable() else " " for c in raw).split())
