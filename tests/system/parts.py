"""The processes of a running cluster, each by what it is; for tests that end or inspect them."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterable
from functools import partial
from ipaddress import ip_address
from pathlib import Path

from tests.processes import command_of, parent_of, processes_of
from tests.system import hang
from tests.system.conftest import BOUND_S, GONE_S, Command, found, wait_until

MARK = b"GPUTUI_CLUSTER="
PARTS = ("head", "scheduler", "relay", "agent", "forkserver", "worker")


class Run:
    """`gputui --run` of one task that hangs, on a cluster whose processes can be told apart."""

    def __init__(self, gputui: Command, hosts: str, task: str) -> None:
        self._hangs = gputui.folder / "hangs"
        self.process: subprocess.Popen[str] = gputui.start(
            *(hosts, "--run", f"{hang.__file__}:PRESET", "-p", f"task={task}"),
            *("-p", f"folder={gputui.folder}", "--json", "--quiet"),
        )
        self.cluster_id = found(lambda: cluster_of(gputui.pids()))

    def reach(self, moment: str, victim: str) -> int:
        """Wait for the moment, start, run or stop, and return the victim's pid."""
        if moment != "start":
            worker = self.hanging_worker()
            if victim == "worker":
                return worker
        if moment == "stop":
            self.process.send_signal(signal.SIGINT)
            wait_until(lambda: not self.pid_of("scheduler"))
        pid = found(lambda: self.pid_of("agent" if victim == "command" else victim))
        return self.process.pid if victim == "command" else pid

    def hanging_worker(self) -> int:
        """Wait until the task hangs, and return its worker's pid."""
        return int(found(self._told_pid, lambda: f"no task hangs: {self._told()}"))

    def _told_pid(self) -> str:
        """Return what the task that hangs has written; "" before that."""
        assert self.process.poll() is None, f"the command ended: {self._told()}"
        return self._hangs.read_text() if self._hangs.exists() else ""

    def _told(self) -> str:
        """Return what the cluster's parts are, and what its head has logged."""
        logs = (self._hangs.parent / "state" / "gputui" / "log").glob("*.log")
        return "\n".join([str(parts_of(self.cluster_id)), *(log.read_text() for log in logs)])

    def pid_of(self, part: str) -> int | None:
        """Return the pid of a part of the cluster, where there is one now."""
        return next(iter(parts_of(self.cluster_id)[part]), None)

    def on_hosts(self) -> set[int]:
        """Return what runs on hosts, but for relays, which hear of no cut until they speak."""
        parts = parts_of(self.cluster_id)
        return {pid for part in ("agent", "forkserver", "worker", "other") for pid in parts[part]}

    def end(self) -> tuple[int, str, str]:
        """Wait for the command, and return exit status, stdout and stderr."""
        out, err = self.process.communicate(timeout=BOUND_S)
        return self.process.returncode, out, err

    def assert_nothing_left(self) -> None:
        left = partial(parts_of, self.cluster_id)
        wait_until(lambda: not any(left().values()), GONE_S, lambda: f"left: {left()}")


def parts_of(cluster_id: str) -> dict[str, list[int]]:
    """Return part → its pids; what tasks started is under "other"."""
    found: dict[str, list[int]] = {part: [] for part in (*PARTS, "other")}
    for pid in processes_of(cluster_id):
        try:
            found[part_of(pid)].append(pid)
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


def listening(pid: int) -> set[tuple[str, int]]:
    """Return the addresses and TCP ports at which a process listens, in its own network.

    Source: proc_pid_net(5); state 0A is LISTEN.
    """
    own = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed since they were listed
            own.add(str(descriptor.readlink()))
    found = set()
    for name in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]:
            _, local, _, state, *_, inode = line.split()[:10]
            if state == "0A" and f"socket:[{inode}]" in own:
                address, _, port = local.partition(":")
                found.add((_address(address), int(port, 16)))
    return found


def _address(words: str) -> str:
    """Return an IP address that /proc writes as hexadecimal words, least significant byte first.

    >>> _address("0100007F")
    '127.0.0.1'
    """
    ordered = [bytes.fromhex(words[at : at + 8])[::-1] for at in range(0, len(words), 8)]
    return str(ip_address(b"".join(ordered)))


def part_of(pid: int) -> str:
    """Return what a process is, by its argv; forks have that of what they were forked from."""
    try:
        words = command_of(pid)
    except (FileNotFoundError, ProcessLookupError):
        return "ended"
    if "gputui.head.scheduler" in words:
        return "scheduler"
    if "gputui.head" in words:
        return "head"
    if "relay" in words:
        return "agent" if Path(f"/proc/{pid}/fd/0").readlink() == Path(os.devnull) else "relay"
    if "forkserver" in words:
        return "worker" if "forkserver" in command_of(parent_of(pid)) else "forkserver"
    return "other"
