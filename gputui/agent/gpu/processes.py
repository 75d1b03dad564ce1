"""Identify the processes on a GPU: their user, command, and whether they are this cluster's.

A process is ours when it carries this cluster's id in its environment, or is one of the known
workers and frontends or a descendant of one. One that /proc does not show (another pid namespace,
hidepid) is of an unknown owner. What was found is kept by pid and start time.
"""

import pwd
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from gputui.model.readings import Owner
from gputui.process import procfs

COMMAND_CHARACTERS = 160
GENERATIONS = 64
"""How far up a process's ancestors are followed."""
KEPT = 4096


@dataclass(frozen=True, slots=True)
class Identity:
    """A process's owner, user and command."""

    owner: Owner
    user: str | None
    command: str | None
    since: float | None = None
    """When it started, in seconds since the epoch."""


UNSEEN = Identity(Owner.UNKNOWN, None, None)


class Processes:
    """Identifies processes for one cluster; may be asked from several threads."""

    def __init__(self, cluster_id: str) -> None:
        self._mark = f"GPUTUI_CLUSTER={cluster_id}".encode()
        self._workers: frozenset[int] = frozenset()
        self._frontends: frozenset[int] = frozenset()
        self._known: dict[tuple[int, int], Identity] = {}

    def know_workers(self, pids: Iterable[int]) -> None:
        """Take these as the workers that run now."""
        workers = frozenset(pids)
        if workers != self._workers:
            self._workers = workers
            self._known = {}

    def know_frontends(self, pids: Iterable[int]) -> None:
        """Take these as the frontends that are attached now."""
        self._frontends = frozenset(pids)
        self._known = {}

    def identify(self, pid: int) -> Identity:
        """Return a process's owner, user and command."""
        stat = procfs.process_stat(pid)
        if stat is None:
            return UNSEEN
        known, key = self._known, (pid, stat.start_ticks)
        identity = known.get(key)
        if identity is None:
            identity = Identity(
                Owner.OURS if self._is_ours(pid) else Owner.OTHER,
                _user(pid),
                _command(pid) or f"[{one_line(stat.command)}]",
                procfs.boot_time() + stat.start_ticks / procfs.TICKS_PER_S,
            )
            if len(known) >= KEPT:
                known.clear()
            known[key] = identity
        return identity

    def _is_ours(self, pid: int) -> bool:
        return self._mark in _environment(pid) or self._descends_from_known(pid)

    def _descends_from_known(self, pid: int) -> bool:
        for _ in range(GENERATIONS):
            if pid in self._workers or pid in self._frontends:
                return True
            stat = procfs.process_stat(pid)
            if stat is None or stat.parent <= 1:
                return False
            pid = stat.parent
        return False


def _environment(pid: int) -> frozenset[bytes]:
    """Return the environment that a process was started with; empty for another user's process."""
    try:
        return frozenset(procfs.read_bytes(f"/proc/{pid}/environ").split(b"\0"))
    except OSError:
        return frozenset()


def _user(pid: int) -> str | None:
    try:
        return user_name(Path(f"/proc/{pid}").stat().st_uid)
    except OSError:
        return None


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
