"""The processes of a running cluster, each by what it is; for tests that end or inspect them."""

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

from tests.clusters import processes_of

MARK = b"GPUTUI_CLUSTER="
PARTS = ("head", "scheduler", "relay", "agent", "nursery", "worker")


def parts_of(cluster_id: str) -> dict[str, list[int]]:
    """Return part → its pids; what tasks started is under "other"."""
    found: dict[str, list[int]] = {part: [] for part in (*PARTS, "other")}
    for pid in processes_of(cluster_id):
        try:
            found[_part(pid)].append(pid)
        except OSError:
            continue
    return found


def cluster_of(pids: Iterable[int]) -> str:
    """Return the id of the cluster that any of these processes is a part of; "" for none."""
    for pid in pids:
        with contextlib.suppress(OSError):
            for entry in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                if entry.startswith(MARK):
                    return entry.removeprefix(MARK).decode()
    return ""


def parent_of(pid: int) -> int:
    """Return the pid of a process's parent."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def command_of(pid: int) -> list[str]:
    """Return a process's argv."""
    return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]


def _part(pid: int) -> str:
    """Return what a process is, by its argv; forks have that of what they were forked from."""
    words = command_of(pid)
    if "gputui.head.scheduler" in words:
        return "scheduler"
    if "gputui.head" in words:
        return "head"
    if "relay" in words:
        return "relay" if os.getsid(pid) == pid else "agent"
    if "nursery" in words:
        return "worker" if "nursery" in command_of(parent_of(pid)) else "nursery"
    return "other"
