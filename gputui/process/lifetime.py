"""Death signals, process groups, and what is left of them: no process outlives its owner.

A task may start processes of its own, in its worker's group or out of it. Agent and forkserver
adopt such orphans, so that whichever of the two is left when something is killed finds and ends
them.
"""

import contextlib
import ctypes
import os
import signal
import time

from gputui.process import procfs

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
"""Source: prctl(2)."""

END_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""Those that ask a process to end."""

REAP_EVERY_S = 0.005

WORKER_MARK = "GPUTUI_WORKER"
"""Set to a worker's pid in its environment: it marks what its tasks start."""


def die_with(parent: int) -> None:
    """Have the kernel kill this process when `parent`, which forked it, ends.

    Called in the main thread, right after the fork. Ends this process if the parent is gone.
    """
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(0)


def adopt_orphans() -> None:
    """Become the parent of any descendant whose own parent ends, whatever its session."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def kill_group(group: int) -> None:
    """Kill every process of a group, if any."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def children() -> list[int]:
    """Return the pids of this process's children, adopted and ended ones included."""
    own = os.getpid()
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 - names only
    return [pid for pid in pids if (stat := procfs.process_stat(pid)) and stat.parent == own]


def worker_of(pid: int) -> int | None:
    """Return the pid of the worker whose task started this process, None where it is unknown."""
    try:
        environ = procfs.read_bytes(f"/proc/{pid}/environ")
    except OSError:
        return None
    mark = f"{WORKER_MARK}=".encode()
    values = [entry[len(mark) :] for entry in environ.split(b"\0") if entry.startswith(mark)]
    return int(values[0]) if values and values[0].isdigit() else None


def end(pid: int) -> None:
    """Kill a child, and the group that it leads."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if os.getpgid(pid) == pid:
            kill_group(pid)
        os.kill(pid, signal.SIGKILL)


def end_children(bound_s: float = 5.0) -> None:
    """End and reap all children, and those whom this process adopts when they are gone.

    One that the kernel cannot end, because a driver hangs, is left after so long.
    """
    deadline = time.monotonic() + bound_s
    while (found := children()) and time.monotonic() < deadline:
        for pid in found:
            end(pid)
        for pid in found:
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(pid, os.WNOHANG) == (0, 0) and time.monotonic() < deadline:
                    time.sleep(REAP_EVERY_S)
