"""Processes of this machine, as /proc tells of them: whose they are, and whether they live."""

import asyncio
import contextlib
import resource
import time
from pathlib import Path


def processes_of(cluster_id: str) -> list[int]:
    """Return the pids of the processes that carry a cluster's id in their environment."""
    return marked(f"GPUTUI_CLUSTER={cluster_id}")


def marked(*entries: str) -> list[int]:
    """Return the pids of the processes with any of these, `NAME=value`, in their environment."""
    wanted, found = {entry.encode() for entry in entries}, []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            there = (process / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if not wanted.isdisjoint(there) and lives(int(process.name)):
            found.append(int(process.name))
    return found


async def nothing_left(cluster_id: str, bound_s: float = 20) -> None:
    """Wait until no process of a cluster is left."""
    started = time.monotonic()
    while left := processes_of(cluster_id):
        assert time.monotonic() - started < bound_s, f"left after {bound_s} s: {left}"
        await asyncio.sleep(0.05)


async def ended(pid: int, bound_s: float = 20) -> None:
    async with asyncio.timeout(bound_s):
        while lives(pid):
            await asyncio.sleep(0.05)


def lives(pid: int) -> bool:
    """Return whether a process runs: one that ended and was not reaped does not."""
    return state_of(pid) not in "ZX"


def state_of(pid: int) -> str:
    """Return a process's state by its letter, X where it is gone."""
    try:
        return status_of(pid)[0]
    except OSError:
        return "X"


def parent_of(pid: int) -> int:
    return int(status_of(pid)[1])


def descendants(pid: int) -> list[int]:
    """Return the processes below one, those whose parent ended apart."""
    found = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                found += [int(child), *descendants(int(child))]
    return found


def command_of(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]


def status_of(pid: int) -> list[str]:
    """Return what follows the command's name in a process's status: its state, its parent, …

    Source: proc_pid_stat(5).
    """
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def cpu_of_children_s() -> float:
    """Return the CPU time that children which have ended used."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
