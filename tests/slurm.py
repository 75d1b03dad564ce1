"""A Slurm of a test's own: munged and slurmctld here, and a slurmd in each network namespace."""

import contextlib
import os
import secrets
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.processes import lives, parent_of
from tests.sshd import Namespaces, free_port, unavailable

UP_S = 60
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
ProctrackType=proctrack/linuxproc
TaskPlugin=task/affinity
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=batch_sched_delay=0
MpiDefault=none
ReturnToService=2
KillWait=5
SlurmdParameters=config_overrides
GresTypes=gpu
{nodes}
PartitionName=all Nodes=ALL Default=YES State=UP
"""


@dataclass
class Slurm:
    """A running Slurm, whose nodes are the namespaces."""

    folder: Path
    nodes: Namespaces
    daemons: list["subprocess.Popen[bytes]"] = field(default_factory=list)

    @property
    def env(self) -> dict[str, str]:
        """What Slurm's commands need in their environment."""
        return {"SLURM_CONF": str(self.folder / "slurm.conf")}

    def start(self) -> None:
        """Start the daemons, and wait until every node is idle."""
        folder = self.folder
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
            )
        )
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
        _until(lambda: (folder / "munge.socket").exists(), "munged")
        self._start("slurmctld", "slurmctld", "-D", "-i")
        for host in self.nodes.hosts:
            # `ip netns exec` would mount another /sys, without control groups.
            inside = ("nsenter", f"--net=/run/netns/{self.nodes.namespace(host)}")
            self._start(host.name, *inside, "slurmd", "-D", "-N", host.name)
        _until(lambda: self("sinfo", "-h", "-o", "%T").strip() == "idle", str(folder))

    def __call__(self, *words: str) -> str:
        """Run a command of Slurm's, and return what it prints."""
        env = {**os.environ, **self.env}
        return subprocess.run(words, env=env, capture_output=True, text=True).stdout

    @contextlib.contextmanager
    def allocation(self, *options: str) -> Iterator[dict[str, str]]:
        """Have a job of two nodes without a shell; yield what its shell would have."""
        env = {**os.environ, **self.env}
        command = ["salloc", "--no-shell", "-N2", *options]
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
            for pid in _descendants(daemon.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            daemon.wait()

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


def _until(holds: object, what: str) -> None:
    assert callable(holds)
    end = time.monotonic() + UP_S
    while not holds():
        assert time.monotonic() < end, f"{what} is not up"
        time.sleep(0.05)


def _descendants(pid: int) -> list[int]:
    """Return a process and those below it, itself last."""
    found = [pid]
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if lives(int(process.name)) and parent_of(int(process.name)) == pid:
                found = [*_descendants(int(process.name)), *found]
    return found


@pytest.fixture(scope="session")
def slurm(namespace_hosts: Namespaces) -> Iterator[Slurm]:
    """Slurm on the namespaces."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin"
    if missing := [name for name in PROGRAMS if shutil.which(name, path=path) is None]:
        unavailable(f"there is no {', '.join(missing)}")
    with tempfile.TemporaryDirectory(prefix="slurm-") as folder:
        running = Slurm(Path(folder), namespace_hosts)
        try:
            running.start()
            yield running
        finally:
            running.stop()
