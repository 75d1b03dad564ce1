"""What `--exec` adds to a program on one host over SSH, beside `ssh` that runs it.

    python -m tests.benchmarks.programs [--repeats 5]

`ssh host python -c pass` twice is the peer: once for the program, once for the host's facts, which
no program is started without. CPU time is that of the command and its head.
"""

import argparse
import sys

from tests.benchmarks.sides import Side, compare, interleaved, own_folders, row
from tests.sshd import running_sshd

GPUTUI = (sys.executable, "-m", "gputui")
PROGRAM = (sys.executable, "-c", "pass")


def main() -> None:
    """Print the medians of both, their ratio, and their CPU time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    with own_folders() as folder, running_sshd(folder, 1) as hosts:
        host = hosts.hosts[0].name
        ssh = f"ssh -F {hosts.config} {host} {sys.executable} -c pass"
        ours = (*GPUTUI, f"{host} gpus=none", "--exec", "--quiet", "--", *PROGRAM)
        sides = (
            Side("gputui", ours, environ=hosts.environment, marks=(f"HOME={folder}",)),
            Side("ssh", ("sh", "-c", f"{ssh} && {ssh}")),
        )
        gputui_times, ssh_times = interleaved(sides, repeats)
        row("medians", "gputui", "ssh", "ratio", "bar")
        compare("until it ended", gputui_times, ssh_times, lambda times: times.ended_s, 1.5)
        compare("CPU time", gputui_times, ssh_times, lambda times: times.cpu_s)


if __name__ == "__main__":
    main()
