"""`python tests/mac.py ARGS`: the command line, where Linux's own parts are missing as on a Mac.

What is not gputui's is imported before: it has its own code for each system. From then on
`sys.platform` is "darwin", Linux's calls are deleted, and where gputui's code opens, lists or looks
at anything in /proc, /sys or /run there is nothing.
"""

import asyncio
import ctypes
import errno
import importlib
import os
import select
import socket
import sys
import sysconfig
import time
from pathlib import Path
from types import FrameType
from typing import Any

import gputui

HIDDEN = ("/proc", "/sys", "/run")
OF_LINUX: dict[Any, tuple[str, ...]] = {
    os: (
        *("pidfd_open", "memfd_create", "posix_fallocate", "posix_fadvise", "waitid", "eventfd"),
        *("sched_getaffinity", "sched_setaffinity", "O_PATH", "copy_file_range"),
        *("splice", "setns", "unshare", "getxattr", "setxattr"),
    ),
    socket: ("SO_PEERCRED",),
    time: ("CLOCK_BOOTTIME",),
    select: ("epoll",),
    ctypes: ("CDLL",),
}
OTHERS = (
    *("psutil", "asyncssh", "distributed", "dask.array", "textual.app", "textual.widgets"),
    *("textual.drivers.linux_driver", "msgspec", "click", "numpy", "rich.markdown", "uuid"),
    *("multiprocessing.util", "platform", "tempfile", "subprocess", "webbrowser"),
)
OURS = str(Path(gputui.__file__).parent)
STANDARD = sysconfig.get_path("stdlib")


def become_a_mac() -> None:
    """Take Linux's own parts away."""
    for name in OTHERS:
        importlib.import_module(name)
    asyncio.get_event_loop_policy()
    for module, names in OF_LINUX.items():
        for name in names:
            if hasattr(module, name):
                delattr(module, name)
    for name in ("stat", "lstat", "readlink", "access"):
        setattr(os, name, hiding(getattr(os, name)))
    sys.platform = "darwin"
    sys.addaudithook(hide)


def hiding(function: Any) -> Any:
    """Return a function of a path that finds nothing of what is hidden."""

    def found(path: Any, *more: Any, **named: Any) -> Any:
        hide("open", (path,))
        return function(path, *more, **named)

    return found


def hide(event: str, arguments: tuple[Any, ...]) -> None:
    """Raise FileNotFoundError where gputui looks at what is hidden."""
    if event not in ("open", "os.listdir", "os.scandir") or not arguments:
        return
    path = os.fspath(arguments[0]) if isinstance(arguments[0], str | Path) else ""
    if any(path == each or path.startswith(f"{each}/") for each in HIDDEN):
        frame: FrameType | None = sys._getframe(1)
        while frame and (_file(frame) == __file__ or _file(frame).startswith((STANDARD, "<"))):
            if "site-packages" in _file(frame):
                return
            frame = frame.f_back
        if frame and _file(frame).startswith(OURS):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)


def _file(frame: FrameType) -> str:
    return frame.f_code.co_filename


if __name__ == "__main__":
    sys.path.pop(0)
    become_a_mac()
    from gputui.cli import main

    main()
