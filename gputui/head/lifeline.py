"""What ties a child of the head to it: Linux ends the child when the head is gone."""

import ctypes
import os
import signal

PR_SET_PDEATHSIG = 1
"""Source: prctl(2)."""


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent ends; to be called first thing."""
    parent = os.getppid()
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)
