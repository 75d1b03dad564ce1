"""A Slurm of a test's own: munged and slurmctld here, and a slurmd in each network namespace.

`slurm` follows a job's processes by their parents. `confined_slurm` has control groups, as most
sites: a job has its own CPUs and device files only. Every user may have jobs on both.
"""

import contextlib
import os
import secrets
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.processes import descendants
from tests.sshd import Namespaces, free_port, unavailable
from tests.system.conftest import wait_until

GPUS = 4
"""Of each node, by device files of their own."""
NVIDIA = 195
"""The major number of such files."""
PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "salloc")
CONFIGURATION = """ClusterName=test
SlurmctldHost={host}({head})
SlurmctldPort={port}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
SlurmUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
ProctrackType=proctrack/{tracking}
TaskPlugin={tasks}
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=batch_sched_delay=0
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
GresTypes=gpu
{nodes}
PartitionName=all Nodes=ALL Default=YES State=UP
"""
GROUPS = Path("/sys/fs/cgroup")
CONFINED = f"""CgroupPlugin=cgroup/v1
CgroupMountpoint={GROUPS}
ConstrainCores=yes
ConstrainDevices=yes
"""
OPEN = """
mkdir {kept} && mount --bind {python} {kept} && mount -t tmpfs none {closed} &&
chmod 755 {closed} && mkdir -p {python} && mount --bind {kept} {python} && exec "$@"
"""
"""Gives every user of a mount namespace an interpreter that is in a folder of root's."""


@dataclass
class Slurm:
    """A running Slurm, whose nodes are the namespaces."""

    folder: Path
    nodes: Namespaces
    confined: bool
    daemons: list["subprocess.Popen[bytes]"] = field(default_factory=list)

    @property
    def env(self) -> dict[str, str]:
        """What Slurm's commands need in their environment."""
        return {"SLURM_CONF": str(self.folder / "slurm.conf")}

    def start(self) -> None:
        """Start the daemons, and wait until every node is idle."""
        folder = self.folder
        folder.chmod(0o755)
        for name in ("state", "dev", *(host.name for host in self.nodes.hosts)):
            (folder / name).mkdir()
        for number in range(GPUS):
            os.mknod(
                folder / "dev" / f"nvidia{number}", stat.S_IFCHR | 0o666, os.makedev(NVIDIA, number)
            )
        (folder / "key").touch(0o600)
        (folder / "key").write_bytes(secrets.token_bytes(128))
        nodes = [
            f"NodeName={host.name} NodeAddr={host.address} CPUs=2 RealMemory=2000 Gres=gpu:{GPUS}"
            for host in self.nodes.hosts
        ]
        (folder / "slurm.conf").write_text(
            CONFIGURATION.format(
                host=socket.gethostname(),
                head=self.nodes.head_address,
                port=free_port(),
                folder=folder,
                nodes="\n".join(nodes),
                tracking="cgroup" if self.confined else "linuxproc",
                tasks="task/affinity,task/cgroup" if self.confined else "task/affinity",
            )
        )
        if self.confined:
            (folder / "cgroup.conf").write_text(CONFINED)
        (folder / "gres.conf").write_text(f"Name=gpu File={folder}/dev/nvidia[0-{GPUS - 1}]\n")
        self._start(
            "munged",
            "munged",
            "--foreground",
            "--force",
            f"--key-file={folder}/key",
            f"--socket={folder}/munge.socket",
            *(f"--{each}-file={folder}/munge.{each}" for each in ("log", "pid", "seed")),
        )
        wait_until((folder / "munge.socket").exists)
        self._start("slurmctld", "slurmctld", "-D", "-i")
        for host in self.nodes.hosts:
            # `ip netns exec` would mount another /sys, without control groups.
            inside = ("nsenter", f"--net=/run/netns/{self.nodes.namespace(host)}")
            opened = _open_to_all(folder / host.name / "python")
            self._start(host.name, *inside, *opened, "slurmd", "-D", "-N", host.name)
        wait_until(lambda: self("sinfo", "-h", "-o", "%T").strip() == "idle")

    def __call__(self, *words: str) -> str:
        """Run a command of Slurm's, and return what it prints."""
        env = {**os.environ, **self.env}
        return subprocess.run(words, env=env, capture_output=True, text=True).stdout

    @contextlib.contextmanager
    def allocation(self, *options: str, before: tuple[str, ...] = ()) -> Iterator[dict[str, str]]:
        """Have a job of two nodes without a shell; yield what its shell would have.

        `before` are words of a command that starts another one, as another user.
        """
        env = {**os.environ, **self.env}
        command = [*before, "salloc", "--no-shell", "-N2", *options]
        said = subprocess.run(command, env=env, capture_output=True, text=True).stderr
        job = said.partition("Granted job allocation ")[2].split()[0]
        nodes = self("squeue", "-h", "-j", job, "-o", "%N").strip()
        try:
            yield {**self.env, "SLURM_JOB_ID": job, "SLURM_JOB_NODELIST": nodes}
        finally:
            self("scancel", job)

    def jobs(self) -> list[str]:
        """Return the numbers of the jobs that there are, ending ones included."""
        return self("squeue", "-h", "-o", "%i").split()

    def stop(self) -> None:
        """Cancel the jobs, and end the daemons and all that they started."""
        for job in self.jobs():
            self("scancel", job)
        for daemon in reversed(self.daemons):
            for pid in (*descendants(daemon.pid), daemon.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            daemon.wait()
        for group in GROUPS.glob("*/slurm_host*"):
            for path in sorted(group.rglob("*/"), reverse=True):
                path.rmdir()
            group.rmdir()

    def _start(self, name: str, *words: str) -> None:
        with (self.folder / f"{name}.out").open("wb") as log:
            self.daemons.append(
                subprocess.Popen(
                    words,
                    env={**os.environ, **self.env},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )
            )


def _open_to_all(kept: Path) -> tuple[str, ...]:
    """Return the words that start a command with an interpreter that every user can run."""
    python = Path(sys.base_prefix).resolve()
    closed = [each for each in python.parents if not each.stat().st_mode & 1]
    script = OPEN.format(kept=kept, python=python, closed=closed[-1] if closed else "")
    return ("unshare", "-m", "sh", "-c", script, "sh") if closed else ()


@contextlib.contextmanager
def _running(nodes: Namespaces, confined: bool) -> Iterator[Slurm]:
    path = f"{os.environ.get('PATH', '')}:/usr/sbin"
    if missing := [name for name in PROGRAMS if shutil.which(name, path=path) is None]:
        unavailable(f"there is no {', '.join(missing)}")
    with tempfile.TemporaryDirectory(prefix="slurm-") as folder:
        running = Slurm(Path(folder), nodes, confined)
        try:
            running.start()
            yield running
        finally:
            running.stop()


@pytest.fixture(scope="module")
def slurm(namespace_hosts: Namespaces) -> Iterator[Slurm]:
    """Slurm on the namespaces."""
    with _running(namespace_hosts, confined=False) as running:
        yield running


@pytest.fixture(scope="module")
def confined_slurm(namespace_hosts: Namespaces) -> Iterator[Slurm]:
    """Slurm with control groups of version 1: a slurmd refuses version 2 next to it."""
    if not (GROUPS / "freezer").is_dir():
        unavailable("there are no control groups of version 1")
    with _running(namespace_hosts, confined=True) as running:
        yield running
