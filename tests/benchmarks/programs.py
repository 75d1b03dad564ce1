"""What `--exec` adds to a program on one host over SSH, beside `ssh` that runs it.

    python -m tests.benchmarks.programs [--repeats 5]

The peer is `ssh host python -c pass` after the host's facts, which no program is started without:
`ssh host nvidia-smi` where this machine has a GPU, which the program then takes, else an empty
program as well. CPU time is that of the command and its head. Dask is configured nowhere, as it is
for most users.
"""

import argparse
import os
import shutil
import sys
from pathlib import Path

from tests.benchmarks.sides import Side, compare, interleaved, own_folders, row
from tests.sshd import SshHosts, running_sshd

GPUTUI = (sys.executable, "-m", "gputui")
PROGRAM = (sys.executable, "-c", "pass")
FACTS = "nvidia-smi --query-gpu=index,uuid,name,utilization.gpu,memory.used --format=csv"


def main() -> None:
    """Print the medians of both, their ratio, and their CPU time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    with own_folders() as folder, running_sshd(folder, 1) as hosts:
        host = hosts.hosts[0].name
        environ = {"PATH": f"{own_ssh(folder, hosts)}:{os.environ['PATH']}"}
        program = f"ssh {host} {sys.executable} -c pass"
        facts, gpus = program, " gpus=none"
        if shutil.which("nvidia-smi"):
            facts, gpus = f"ssh {host} {FACTS} >/dev/null", ""
        ours = (*GPUTUI, f"{host}{gpus}", "--exec", "--quiet", "--", *PROGRAM)
        sides = (
            Side("gputui", ours, environ=environ, marks=(f"HOME={folder}",)),
            Side("ssh", ("sh", "-c", f"{facts} && {program}"), environ=environ),
        )
        gputui_times, ssh_times = interleaved(sides, repeats)
        row("medians", "gputui", "ssh", "ratio", "bar")
        compare("until it ended", gputui_times, ssh_times, lambda times: times.ended_s, 1.5)
        compare("CPU time", gputui_times, ssh_times, lambda times: times.cpu_s)


def own_ssh(folder: Path, hosts: SshHosts) -> Path:
    """Return a folder with an ssh that reads the hosts' configuration, as a user's would."""
    script = folder / "bin" / "ssh"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {hosts.config} "$@"\n')
    script.chmod(0o755)
    return script.parent


if __name__ == "__main__":
    main()
