"""Death signals, process groups, and what is left of them: no process outlives its owner.

A task may start processes of its own, in its worker's group or out of it. Agent and forkserver
adopt such orphans, so that whichever of the two is left when something is killed finds and ends
them.
"""

import contextlib
import ctypes
import errno
import gc
import os
import resource
import signal
import threading
import time
from collections.abc import Collection

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
"""Source: prctl(2)."""

END_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""Those that ask a process to end."""

OPEN_FILES = 2**16
"""More are of no use, and programs that close them all at their start would take long."""
REAP_EVERY_S = 0.005
ENDED_S = 5.0
"""How long the kernel may take to end killed children."""

NO_DUMP = 1
"""As RLIMIT_CORE: too small for any dump, and the kernel pipes none to a handler. Source: core(5)
and `do_coredump` in the kernel; 0 would not keep the handler from it."""
_core_limit: int | None = None
"""RLIMIT_CORE as it was before `dump_no_core`."""

GARBAGE_AFTER = 50_000
"""Fresh values between two garbage collections, 700 by default. A snapshot of a large cluster, or
its agents' readings, are thousands of values that all live for a second: to look at them over and
over takes a third of the screen's time, and a fifth of the head's."""


def forks_have_own_signals() -> None:
    """Have a signal that ends a process mean that process alone, though another forked it.

    asyncio's handlers would write it into the pipe that the child shares with its parent's loop: a
    `multiprocessing.Pool` that ends would end the worker whose task made it.
    """
    masks, worker = threading.local(), os.getpid()

    def block() -> None:
        masks.before = signal.pthread_sigmask(signal.SIG_BLOCK, END_SIGNALS)

    def unblock() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, masks.before)

    def release() -> None:
        if os.getppid() == worker:  # what its children fork have the signals that these chose
            signal.set_wakeup_fd(-1)
            for each in END_SIGNALS:
                signal.signal(each, signal.SIG_DFL)
        unblock()

    os.register_at_fork(before=block, after_in_parent=unblock, after_in_child=release)


def die_with(parent: int, number: signal.Signals = signal.SIGKILL) -> None:
    """Have the kernel send this process a signal when `parent`, which forked it, ends.

    Called in the main thread, right after the fork. Ends this process if the parent is gone.
    """
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, number, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(0)


def raise_file_limit() -> None:
    """Allow more open files: each host, worker and client takes some, and some ways through SSH."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, OPEN_FILES), hard))


def dump_no_core() -> None:
    """Have this process leave no core dump: the cluster's key would be in it.

    Its stacks stay readable for this user's debuggers.
    """
    global _core_limit
    _core_limit, hard = resource.getrlimit(resource.RLIMIT_CORE)
    if hard:
        resource.setrlimit(resource.RLIMIT_CORE, (NO_DUMP, hard))


def dump_core_as_before(pid: int) -> None:
    """Give a child the limit that this process had before `dump_no_core`."""
    if _core_limit is not None:
        with contextlib.suppress(ProcessLookupError):
            _, hard = resource.prlimit(pid, resource.RLIMIT_CORE)
            resource.prlimit(pid, resource.RLIMIT_CORE, (_core_limit, hard))


def look_rarely() -> None:
    """Collect garbage rarely, and never the objects that exist now, mostly modules."""
    gc.freeze()
    gc.set_threshold(GARBAGE_AFTER, *gc.get_threshold()[1:])


def start_problem(error: Exception) -> str:
    """Describe why a process could not start, or have a thread start, and the hint.

    >>> start_problem(RuntimeError("can't start new thread"))
    'this user may run no more processes and threads there: see ulimit -u and TasksMax'
    >>> start_problem(FileNotFoundError(errno.ENOENT, "No such file or directory", "/a"))
    '/a: No such file or directory'
    """
    threads = isinstance(error, RuntimeError) and "start new thread" in str(error)
    if threads or (isinstance(error, OSError) and error.errno == errno.EAGAIN):
        return "this user may run no more processes and threads there: see ulimit -u and TasksMax"
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}"
    return f"{type(error).__name__}: {error}"


def adopt_orphans() -> None:
    """Become the parent of any descendant whose own parent ends, whatever its session."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def kill_group(group: int) -> None:
    """Kill every process of a group, if any."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def children() -> list[int]:
    """Return the pids of this process's children, adopted and ended ones included."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:  # none: nothing to look for among all processes
        return []
    from gputui.process import procfs  # a program's parent imports it later

    own = os.getpid()
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 - names only
    return [pid for pid in pids if (stat := procfs.process_stat(pid)) and stat.parent == own]


def end(pid: int) -> None:
    """Kill a child, and the group that it leads."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if os.getpgid(pid) == pid:
            kill_group(pid)
        os.kill(pid, signal.SIGKILL)


def end_children() -> None:
    """End and reap all children, and those whom this process adopts when they are gone.

    One that the kernel cannot end, because a driver hangs, is left after `ENDED_S`.
    """
    deadline = time.monotonic() + ENDED_S
    while (found := children()) and time.monotonic() < deadline:
        end_and_reap(found, deadline)


def end_and_reap(pids: Collection[int], deadline: float) -> None:
    """End and reap these children, until a deadline of `time.monotonic`."""
    for pid in pids:
        end(pid)
    for pid in pids:
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(pid, os.WNOHANG) == (0, 0) and time.monotonic() < deadline:
                time.sleep(REAP_EVERY_S)
