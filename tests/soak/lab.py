"""The cluster that is soaked: its hosts, its processes, the work it must always do right."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.sshd import Namespaces, SshHost, running_namespaces
from tests.system.conftest import Command, a_command
from tests.system.parts import cluster_of, parts_of

NAME = "soak"
LEASE_S = 6
SETTLE_S = 90
"""The longest wait between two tries to reach a host, a lease, and a start of its workers."""
RUN_S = 120
WORKERS_A_HOST = 2
RUN = ("random-sum", "-p", "size=2000", "-p", "seed=5")


class SoakError(Exception):
    """Something is not as it must be."""


@dataclass
class Lab:
    """A running cluster of three hosts."""

    gputui: Command
    hosts: Namespaces
    wanted: int = 3 * WORKERS_A_HOST
    expected: float | None = None
    """What every run must give."""
    cluster_id: str = ""
    schedulers_killed: list[float] = field(default_factory=list)
    """When that was done."""

    def start(self) -> None:
        """Start the cluster, and run once."""
        path = self.gputui.folder / "hosts.txt"
        options = f"gpus=none workers={WORKERS_A_HOST} nthreads=1 memory=512MiB"
        path.write_text(self.hosts.text(f"{options} env.TMPDIR={self.scratch}"))
        self.command("up", str(path), "--name", NAME)
        self.cluster_id = cluster_of(self.gputui.pids())
        self.settle()
        self.run()

    @property
    def scratch(self) -> Path:
        """Where the hosts keep what workers write: a small disk that can be filled."""
        return self.gputui.runtime / "disk"

    def command(self, *arguments: str, status: int = 0, timeout_s: float = RUN_S) -> str:
        """Run a command to its end and return its stdout; raises SoakError."""
        done = self.gputui(*arguments, timeout_s=timeout_s)
        if done.returncode != status:
            words = " ".join(arguments)
            raise SoakError(
                f"gputui {words} ended with {done.returncode}, not {status}: {done.stderr}"
            )
        return done.stdout

    def run(self) -> None:
        """Compute, and compare with every run before; raises SoakError."""
        out = self.command("--attach", NAME, "--run", *RUN, "--json", "--quiet")
        value = json.loads(out)["result"]["sum"]
        if self.expected is None:
            self.expected = value
        if value != self.expected:
            raise SoakError(f"a run gave {value}, and {self.expected} before")

    def status(self) -> Any:
        """Return what `ls` says of the cluster."""
        clusters = json.loads(self.command("ls", "--json"))
        return next((each for each in clusters if each["name"] == NAME), None)

    def settle(self) -> None:
        """Wait until the workers that are wanted are up; raises SoakError."""
        self.wait(
            lambda: len(self.pids("worker")) == self.wanted == self._registered(),
            SETTLE_S,
            lambda: f"{self._registered()} of {self.wanted} workers: {parts_of(self.cluster_id)}",
        )

    def pids(self, part: str) -> list[int]:
        """Return the processes of a part of this cluster."""
        return parts_of(self.cluster_id)[part]

    def small_clusters(self) -> list[dict[str, list[int]]]:
        """Return the processes of each other cluster that runs, by part."""
        ids = {cluster_of([pid]) for pid in self.gputui.pids()} - {self.cluster_id, ""}
        return [parts for each in ids if any((parts := parts_of(each)).values())]

    def kill(self, pid: int, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to a process of this cluster."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)

    def host(self, rng: Any) -> SshHost:
        """Return one of the hosts."""
        return rng.choice(self.hosts.hosts)

    def wait(
        self, holds: Callable[[], object], bound_s: float, why: Callable[[], object] = lambda: ""
    ) -> None:
        """Wait until something holds; raises SoakError."""
        end = time.monotonic() + bound_s
        while not holds():
            if time.monotonic() > end:
                raise SoakError(f"not within {bound_s} s: {why()}")
            time.sleep(0.1)

    def sizes(self) -> dict[str, int]:
        """Return what must not grow: memory, open files and log bytes, by part."""
        parts = parts_of(self.cluster_id)
        found = {}
        for part in ("head", "scheduler", "agent", "forkserver", "relay"):
            found[f"{part}: RSS kB"] = sum(map(_rss_kb, parts[part]))
            found[f"{part}: open files"] = sum(map(_files, parts[part]))
        logs = [path for path in self.gputui.folder.rglob("*.log*") if path.is_file()]
        return found | {"log bytes": sum(path.stat().st_size for path in logs)}

    def _registered(self) -> int:
        status = self.status()
        return status["workers"] if status else 0


@contextlib.contextmanager
def running_lab(folder: Path) -> Iterator[Lab]:
    """Run the cluster; at the end nothing of it may be left."""
    (folder / "command").mkdir()
    (folder / "hosts").mkdir()
    with (
        running_namespaces(folder / "hosts", 3) as hosts,
        a_command(folder / "command") as gputui,
    ):
        gputui.env |= {**hosts.environment, "DASK_GPUTUI__LEASE": str(LEASE_S)}
        lab = Lab(gputui, hosts)
        with small_disk(lab.scratch):
            lab.start()
            yield lab
            lab.command("down", NAME)


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """Mount a disk of 64 MB that can be filled."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", folder], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)
        shutil.rmtree(folder)  # what was written to the folder while the disk was not mounted


def _rss_kb(pid: int) -> int:
    with contextlib.suppress(OSError, ValueError, StopIteration):
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("VmRSS")).split()[1])
    return 0


def _files(pid: int) -> int:
    with contextlib.suppress(OSError):
        return len(list(Path(f"/proc/{pid}/fd").iterdir()))
    return 0
