"""What an agent finds when it examines its workers: stacks, process states, pressure, full disks.

Frozen values, taken on request; `gputui.model.verdicts` makes sentences of them.
"""

import re
from collections.abc import Iterable

from gputui.model.bounds import Few, Line, Name, Number, Percent, Pid, Some
from gputui.model.frozen import frozen


@frozen
class ThreadStack:
    """One thread of a process."""

    name: Name
    frames: Few[Line]
    """`folder/file.py:12 function`, the innermost first."""
    task: Line = ""
    """The key of the task that it runs."""
    has_gil: bool = False
    """Whether it is known to hold the GIL."""
    number: Number = 0
    """The kernel's, of /proc/PID/task; 0 where it is not known."""
    waits: Line = ""
    """What it waits for, if nothing of its process ran while it was examined."""


@frozen
class Fetch:
    """Results on their way from a worker."""

    address: Name
    results: Number


@frozen
class Transfers:
    """A worker's transfers, the last part of its answer."""

    fetching: Few[Fetch] = ()
    waiting: Number = 0
    """Tasks that wait for results of others."""


@frozen
class ExaminedWorker:
    """A worker's process."""

    name: Name
    pid: Pid
    state: Name
    """As /proc has it: R runs, S sleeps, D waits for a device or a disk, T is stopped, Z ended."""
    wait_channel: Name = ""
    """The function of the kernel that it waits in."""
    answered: bool = False
    """Whether its Python answered its agent in time."""
    threads: Few[ThreadStack] = ()
    transfers: Transfers = Transfers()
    problem: Line = ""
    """Why there are no stacks."""
    most_files: Number = 0
    """How many files it may have open; 0 where that is not known."""


@frozen
class ExaminedHost:
    """A host and its workers."""

    host: Name = ""
    """As the head calls it."""
    workers: Some[ExaminedWorker] = ()
    memory_stall_percent: Percent | None = None
    """For how much of the last 10 s every process waited for memory (PSI); None without PSI."""
    full_disks: Few[Line] = ()
    tasks_full: Name = ""
    """`512 of 512` processes and threads of its control group, where hardly one more may start."""
    unreached: Few[Name] = ()
    """Far ends of its connections, `10.0.0.7:8786`, that do not answer."""


@frozen
class ExaminedScheduler:
    """The scheduler's process; or pid 0."""

    pid: Pid = 0
    state: Name = ""
    frames: Few[Line] = ()
    """Of its loop, where that did not answer; the innermost first."""


def short_frame(path: str, line: int | None, function: str) -> str:
    """Describe a frame, without the folders that say where somebody's home is.

    >>> short_frame("/home/ann/env/lib/python3.11/site-packages/dask/core.py", 7, "get")
    'dask/core.py:7 get'
    >>> short_frame("/home/ann/mine.py", 3, "f")
    '~/mine.py:3 f'
    """
    path = re.sub(r"^/(home|Users|users)/[^/]+/", "~/", path)
    return f"{'/'.join(path.rsplit('/', 2)[-2:])}:{line} {function}"


def parse_dump(lines: Iterable[str]) -> tuple[ThreadStack, ...]:
    """Return the threads in the lines of `faulthandler`.

    >>> dump = ["Thread 0x7f12 (most recent call first):", '  File "/a/b/c.py", line 3 in f']
    >>> parse_dump(dump) == (ThreadStack("thread 0x7f12", ("b/c.py:3 f",)),)
    True
    """
    threads: list[tuple[str, list[str]]] = []
    for line in lines:
        if head := re.match(r"(?:Current t|T)hread (0x[0-9a-f]+)|Stack ", line):
            threads.append((f"thread {head[1]}", []))
        elif threads and (frame := re.match(r'  File "(.*)", line (\d+) in (.*)', line)):
            threads[-1][1].append(short_frame(frame[1], int(frame[2]), frame[3]))
    return tuple(ThreadStack(name, tuple(frames)) for name, frames in threads)
