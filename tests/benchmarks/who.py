"""`gputui who` of many hosts beside a script with asyncssh that runs nvidia-smi on them all.

    python -m tests.benchmarks.who [--hosts 100] [--repeats 5] [--apart]

Both are whole processes, as a person starts them; Dask is configured nowhere, as it is for most.
All hosts are loopback addresses of this machine, which plays them, too; where it has no nvidia-smi,
a script answers in its place. With --apart every host answers as one did alone, and takes the time
of that and no CPU of this machine: as machines of their own.
"""

import argparse
import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from tests.benchmarks.doctor import loopback_hosts, serving
from tests.benchmarks.programs import own_ssh
from tests.benchmarks.recorded import player, recorder, slow_command
from tests.benchmarks.sides import Side, compare, interleaved, own_folders, row, timed
from tests.sshd import SshHosts

PEER = """
import asyncio, sys, asyncssh

known_hosts, key, command, *addresses = sys.argv[1:]

async def run(address):
    host, _, port = address.partition(":")
    options = {"config": None, "known_hosts": known_hosts, "client_keys": [key]}
    async with asyncssh.connect(host, int(port), **options) as connection:
        return (await connection.run(command, check=True)).stdout

async def main():
    print(*await asyncio.gather(*map(run, addresses)), sep="")

asyncio.run(main())
"""


def main() -> None:
    """Print the medians of both, their ratio, and their CPU time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--apart", action="store_true")
    arguments = parser.parse_args()
    with own_folders() as folder:
        hosts = SshHosts(folder)
        hosts.make_keys()
        environ = {"PATH": f"{own_ssh(folder, hosts)}:{os.environ['PATH']}"}
        try:
            with serving(hosts) as ports:
                hosts.describe(*loopback_hosts(arguments.hosts, ports))
                python, command = sys.executable, nvidia_smi(folder)
                if arguments.apart:
                    alone = replace(hosts, hosts=hosts.hosts[:1])
                    recording = who(alone, str(recorder(folder, python)), environ)
                    for _ in range(2):  # the first sends the agent
                        timed(recording)
                    python, command = str(player(folder)), slow_command(folder, command)
                sides = who(hosts, python, environ), peer(hosts, command)
                ours, theirs = interleaved(sides, arguments.repeats)
        finally:
            hosts.stop()
    row("medians", "who", "asyncssh", "ratio", "bar")
    compare("until it ended", ours, theirs, lambda times: times.ended_s, 1.5)
    compare("CPU time", ours, theirs, lambda times: times.cpu_s)


def who(hosts: SshHosts, python: str, environ: Mapping[str, str]) -> Side:
    """Return `gputui who` of the hosts, with this Python there."""
    file = hosts.folder / f"hosts-{len(hosts.hosts)}.txt"
    file.write_text(hosts.text(f"python={python}"))
    command = (sys.executable, "-m", "gputui", "who", str(file))
    return Side("who", command, environ=environ)


def peer(hosts: SshHosts, command: str) -> Side:
    """Return the script, which runs this command on the hosts."""
    where = (f"{host.address}:{host.port}" for host in hosts.hosts)
    arguments = (str(hosts.known_hosts), str(hosts.client_key), command, *where)
    return Side("asyncssh", (sys.executable, "-c", PEER, *arguments))


def nvidia_smi(folder: Path) -> str:
    """Return nvidia-smi with the question that people ask it, or a script in its place."""
    if shutil.which("nvidia-smi"):
        return "nvidia-smi --query-gpu=index,name,utilization.gpu,memory.used --format=csv"
    script = folder / "nvidia-smi"
    script.write_text("#!/bin/sh\necho '0, NVIDIA H100, 0 %, 1 MiB, 81559 MiB'\n")
    script.chmod(0o755)
    return str(script)


if __name__ == "__main__":
    main()
