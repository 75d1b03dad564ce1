"""The limits that control groups put on this process: CPUs, memory, threads, and its end by them.

Read from version 2 or version 1 of the interface, whichever the machine has; every group from
this process's own up to the root counts, the tightest wins. Where nothing limits, None.
"""

import math
from collections.abc import Iterator
from pathlib import Path

from gputui.process import procfs
from gputui.process.procfs import MemoryUse, number_after, read_text

MOUNT = Path("/sys/fs/cgroup")
UNLIMITED_BYTES = 2**60
"""Version 1 writes "no limit" as a number near 2**63."""


FILES = {
    1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    2: ("memory.max", "memory.current", "inactive_file"),
}
"""Of each version: a group's limit, its use, and the line of memory.stat that counts file pages
which can be dropped at once."""
EVENTS = ("memory.events", "memory.oom_control")
"""Where the line `oom_kill` counts the processes that the kernel ended for memory."""


class Cgroups:
    """The groups of this process; they are looked up once, their limits at every call.

    An agent calls once a second, hence texts for folders: joining a `Path` costs as much as reading
    such a file.
    """

    def __init__(self, mount: Path = MOUNT, membership: str | None = None) -> None:
        paths = parse_membership(_read("/proc/self/cgroup") if membership is None else membership)
        unified = [(folder, 2) for folder in _folders(mount, "", paths)]
        self._memory = [*((folder, 1) for folder in _folders(mount, "memory", paths)), *unified]
        self._cpu = [*_folders(mount, "cpu", paths), *(folder for folder, _ in unified)]
        self._pids = [*_folders(mount, "pids", paths), *(folder for folder, _ in unified)]

    def cpu(self) -> tuple[float, float | None] | None:
        """Return the tightest quota, in CPUs, and how many seconds of CPU that group has used.

        The latter since it was made; None in version 1.
        """
        quotas = [(cpus, each) for each in self._cpu if (cpus := _quota(each)) is not None]
        if not quotas:
            return None
        cpus, folder = min(quotas)
        used_us = number_after("usage_usec", _read(f"{folder}/cpu.stat"))
        return cpus, None if used_us is None else used_us / 1e6

    def cpus(self) -> int | None:
        """Return how many CPUs the quota gives, rounded up."""
        quota = self.cpu()
        return None if quota is None else max(1, math.ceil(quota[0]))

    def tasks(self) -> tuple[int, int] | None:
        """Return how many processes and threads the fullest group has, and how many it may have."""
        found = [
            (_number(f"{folder}/pids.current") or 0, most)
            for folder in self._pids
            if (most := _number(f"{folder}/pids.max")) is not None
        ]
        return min(found, key=lambda each: each[1] - each[0], default=None)

    def memory(self) -> MemoryUse | None:
        """Return the tightest memory limit and what that group uses of it."""
        limits = [
            (limit, folder, version)
            for folder, version in self._memory
            if (limit := _number(f"{folder}/{FILES[version][0]}")) is not None
        ]
        limit, folder, version = min(limits, default=(UNLIMITED_BYTES, "", 2))
        if limit >= UNLIMITED_BYTES:
            return None
        _, usage, reclaimable = FILES[version]
        used = _number(f"{folder}/{usage}") or 0
        dropped = number_after(reclaimable, _read(f"{folder}/memory.stat")) or 0
        return MemoryUse(limit, max(0, used - dropped))

    def limit_hits(self) -> int:
        """Return how often memory ran out at a limit of a group, not of the host."""
        return sum(
            (_number(f"{folder}/memory.failcnt") or 0)
            if version == 1
            else (number_after("oom", _read(f"{folder}/memory.events")) or 0)
            for folder, version in self._memory
        )

    def oom_kills(self) -> int:
        """Return how many processes the kernel has ended because memory ran out.

        Of this process's own group, whichever memory that was; of the whole host where the group
        does not count them, as the outermost one of version 2.
        """
        files = [f"{folder}/{name}" for folder, _ in self._memory for name in EVENTS]
        for file in (*files, "/proc/vmstat"):
            if (found := number_after("oom_kill", _read(file))) is not None:
                return found
        return 0


def parse_membership(text: str) -> dict[str, str]:
    """Return /proc/self/cgroup as controller → path; the unified hierarchy is "".

    >>> parse_membership("4:memory:/job\\n2:cpu,cpuacct:/\\n0::/user.slice\\n")
    {'memory': '/job', 'cpu': '/', 'cpuacct': '/', '': '/user.slice'}
    """
    paths = {}
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            paths[controller] = path
    return paths


def _folders(mount: Path, controller: str, paths: dict[str, str]) -> Iterator[str]:
    """Yield the existing folders of a controller's group and of those above it.

    Inside a container the path may be the host's, and only the mount itself exists.
    """
    if controller not in paths:
        return
    top = (
        mount / controller if controller or not (mount / "unified").is_dir() else mount / "unified"
    )
    folder = top / paths[controller].lstrip("/")
    for candidate in (folder, *folder.parents):
        if candidate.is_dir():
            yield str(candidate)
        if candidate == top:
            return


def _quota(folder: str) -> float | None:
    quota, _, period = _read(f"{folder}/cpu.max").strip().partition(" ")
    if not quota:  # version 1, where -1 is without a quota
        quota = _read(f"{folder}/cpu.cfs_quota_us").strip()
        period = _read(f"{folder}/cpu.cfs_period_us").strip()
    limited = quota.isdecimal() and period.isdecimal() and int(quota) and int(period)
    return int(quota) / int(period) if limited else None


def _number(path: str) -> int | None:
    """Return the number in a file; None for "max", or without the file."""
    text = _read(path).strip()
    return int(text) if text.lstrip("-").isdecimal() else None


def _read(path: str) -> str:
    try:
        return read_text(path)
    except OSError:
        return ""


def memory(cgroups: Cgroups | None = None) -> procfs.MemoryUse:
    """Return this process's memory limit and usage now.

    That is its cgroups' limit or the machine's memory, whichever is less.
    """
    machine = procfs.memory()
    limit = (cgroups or Cgroups()).memory()
    return machine if limit is None or limit.total_bytes >= machine.total_bytes else limit
