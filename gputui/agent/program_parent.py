"""The parent of one program: it ends all that the program started, when that or the agent ends.

A process of its own, because a program may start daemons: they become its children when their own
parent ends, and cannot be confused with those of another program of this host.
"""

import fcntl
import os
import signal
import termios
from collections.abc import Sequence

from gputui.process.lifetime import adopt_orphans, die_with, end_children

IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGTSTP)
"""They are for the program, which is in the same process group."""

END = signal.SIGPWR
"""Ends the program, all that it started, and this process; the kernel sends it when the agent
ends."""

NOT_FOUND, NOT_RUN = 127, 126
"""As a shell exits. Source: POSIX, Shell Command Language, 2.8.2."""


def run_program(agent: int, terminal: bool, argv: Sequence[str]) -> int:
    """Run a program to its end, with this process's stdin, stdout, stderr and environment.

    Returns its exit status, or ends by the signal that it ended by.
    """
    adopt_orphans()
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    signal.signal(END, _end)
    die_with(agent, END)
    if terminal:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    parent = os.getpid()
    if not (program := os.fork()):
        _become(parent, argv)
    _get_ready_to_end()
    while (ended := os.waitpid(-1, 0))[0] != program:
        pass
    end_children()
    code = os.waitstatus_to_exitcode(ended[1])
    if code < 0:
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(parent, -code)
    return code


def _get_ready_to_end() -> None:
    """Import now what will end the children: its file may be gone by then."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {END})
    import gputui.process.procfs

    del gputui
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {END})


def _end(*_: object) -> None:
    end_children()
    os.kill(os.getpid(), signal.SIGKILL)


def _become(parent: int, argv: Sequence[str]) -> None:
    """Replace this process, just forked, by the program."""
    die_with(parent)
    for number in (*IGNORED, END, signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)  # what Python ignores, a program does not expect so
    try:
        os.execvp(argv[0], list(argv))
    except (OSError, ValueError) as error:  # "" is no name of a program
        os.write(2, f"gputui: {argv[0]}: {getattr(error, 'strerror', error)}\n".encode())
        os._exit(NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_RUN)
