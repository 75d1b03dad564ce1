"""Hosts of a Slurm allocation: srun starts a step of the job on each, where SSH may not be allowed.

A step has what the job has of its node: GPUs, memory, and CPUs by its control group. The addresses
of both ends are known on the node only.
"""

import os
import re
import shutil
from pathlib import Path

from gputui.fleet.session import LocalStream
from gputui.fleet.stages import Stages
from gputui.model.hosts import Host, parse_hosts
from gputui.model.snapshot import HostState
from gputui.process.child import run

KEPT = ("SLURM_CONF", "SLURM_CLUSTERS", "SLURM_WORKING_CLUSTER", "SLURM_JWT")
"""The variables by which srun finds the controller."""
DROPPED = ("SLURM_", "SRUN_", "SSH_C")
"""The others are options for the user's own steps, or those of an SSH connection to this machine,
and stay here."""
OPTIONS = (
    *("--nodes=1", "--ntasks=1", "--overlap", "--mem=0"),
    *("--cpu-bind=none", "--mpi=none", "--kill-on-bad-exit=0", "--quiet"),
)
"""One process on one node, with all that the job has there, next to other steps."""


class Step:
    """A job on one of its nodes; the same calls as an `SshConnection` has."""

    local_address = far_address = ""
    forwarding = None

    def __init__(self, host: Host, gpus: int) -> None:
        # A step has no GPU by default where the job is exclusive, and all of the job's where that
        # asked for a number in all: then no node has enough.
        wanted = f"--gpus={gpus}" if gpus else "--gres=none"
        self._where = (f"--jobid={host.slurm_job}", f"--nodelist={host.name}", wanted)

    async def run(self, command: str) -> LocalStream:
        """Run a command as a step, in the home, as over SSH."""
        words = ["srun", *self._where, *OPTIONS, f"--chdir={Path.home()}", "sh", "-c", command]
        environ = {
            name: value
            for name, value in os.environ.items()
            if name in KEPT or not name.startswith(DROPPED)
        }
        return await LocalStream.start(words, environ)

    async def close(self) -> None:
        """Do nothing: a step ends with its stream."""


async def connect(host: Host, stages: Stages) -> Step:
    """Find a node in its job; raises HostError where it is not there, or Slurm is not here."""
    if shutil.which("srun") is None:
        reason = f"it is a node of Slurm's job {host.slurm_job}, and srun is not installed here"
        raise stages.error(reason, "take slurm= off its line to reach it over SSH")
    late = "Slurm's controller does not answer"
    async with stages.enter(HostState.RESOLVING, late, "`scontrol ping` tells whether it is up"):
        ended = await run(["scontrol", "show", "job", "-d", str(host.slurm_job)])
    gpus, state = gpus_on(host.name, ended.output), re.search(r"JobState=(\w+)", ended.output)
    if gpus is None or not state or state[1] != "RUNNING":
        found = f"its state is {state[1]}" if state else "there is no such job"
        if state and state[1] == "RUNNING":
            found = f"{host.name} is not one of its nodes"
        reason = f"Slurm's job {host.slurm_job}: {'; '.join((found, *ended.last_log_lines))}"
        raise stages.error(reason, "squeue --me lists your jobs, with their nodes")
    return Step(host, gpus)


def gpus_on(node: str, job: str) -> int | None:
    """Return how many GPUs a job has on a node; None where it has not that node.

    >>> gpus_on("a2", " Nodes=a[1-2],b CPU_IDs=0 Mem=0 GRES=gpu:a100:2(IDX:0-1),gpu:1(IDX:3)")
    3
    """
    for nodes, resources in re.findall(r"^ +Nodes=(\S+) .*GRES=(\S*)", job, re.M):
        if any(host.name == node for host in parse_hosts(nodes)):
            return sum(map(int, re.findall(r"gpu(?::[^:(,]+)?:(\d+)", resources)))
    return None
