"""`@group`, in a hosts file → its hosts: the nodes of a Slurm allocation, or ClusterShell's group.

Called where the texts of users are parsed, by frontends and by the head; ClusterShell's command
takes some tenths of a second.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from gputui.errors import UsageError

BOUND_S = 30.0
"""A group's members may come from a directory service."""
NAMED = 5
"""How many groups are named where none has the name."""


def members(name: str) -> str:
    """Return the hosts of a group as a line of a hosts file; raises UsageError."""
    return _allocation() if name == "slurm" else _clustershell(name)


def _allocation() -> str:
    """Return the nodes of the Slurm job that this process is in."""
    job, nodes = (os.environ.get(f"SLURM_JOB_{each}", "") for each in ("ID", "NODELIST"))
    if not (job and nodes):
        raise UsageError(
            "@slurm: this shell is in no Slurm allocation; get one first, such as: "
            "salloc -N 2 --gpus-per-node=4"
        )
    return f"{nodes} slurm={job}"


def _clustershell(name: str) -> str:
    """Return the hosts of a group of ClusterShell's, by its command.

    Its library may be installed for another Python than this one.
    """
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    if (nodeset := shutil.which("nodeset", path=path)) is None:
        raise UsageError(
            f"@{name}: groups are ClusterShell's, and its command nodeset is not installed here: "
            "pip install ClusterShell"
        )
    status, hosts = _run(nodeset, "-f", "-S", ",", f"@{name}")
    if status or not hosts:
        _, known = _run(nodeset, "-L" if ":" in name else "-l")
        some = ", ".join(known.split()[:NAMED]) or "none"
        raise UsageError(
            f"@{name}: ClusterShell has no such group, or it is empty (nodeset -l lists {some})"
        )
    return hosts


def _run(*command: str) -> tuple[int, str]:
    """Return a command's exit status and output; raises UsageError without an end."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=BOUND_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError(f"{' '.join(command)}: {error}") from error
    return done.returncode, done.stdout.strip()
