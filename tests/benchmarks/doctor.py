"""The cost of `doctor` against asyncssh that runs `true` on the same hosts.

    python -m tests.benchmarks.doctor [--hosts 100] [--repeats 3]

All hosts are loopback addresses of one sshd on this machine, or of a server of asyncssh for each
core where there is no sshd. So this machine plays the hosts, too: wall time has their shells,
interpreters and agents in it; CPU time is that of the client alone.
"""

import argparse
import asyncio
import contextlib
import getpass
import itertools
import multiprocessing
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from multiprocessing.queues import Queue
from pathlib import Path

import asyncssh

from gputui.fleet.checks import Verdict
from gputui.fleet.doctor import diagnose
from gputui.fleet.stages import FleetSettings, Question
from gputui.model.hosts import Host
from tests.sshd import SSHD, AsyncsshServer, SshHost, SshHosts, free_port, wait_for_ssh


def main() -> None:
    """Print medians of both, and their ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        ssh_hosts = SshHosts(Path(folder))
        ssh_hosts.make_keys()
        try:
            with serving(ssh_hosts) as ports:
                ssh_hosts.describe(*loopback_hosts(arguments.hosts, ports))
                measure(ssh_hosts, arguments.repeats)
        finally:
            ssh_hosts.stop()


def loopback_hosts(count: int, ports: Iterator[int]) -> Iterator[SshHost]:
    """Yield hosts at loopback addresses of their own, which this machine serves."""
    for number, port in zip(range(1, count + 1), ports, strict=False):
        yield SshHost(f"host{number}", f"127.0.1.{number}", port, getpass.getuser())


@contextlib.contextmanager
def serving(hosts: SshHosts) -> Iterator[Iterator[int]]:
    """Serve SSH on all loopback addresses; yields the port of each host."""
    if SSHD:
        host = SshHost("ssh1", "0.0.0.0", free_port(), getpass.getuser())
        hosts.start_sshd(host, settings="MaxStartups 1000\n")
        wait_for_ssh(hosts, host)
        yield itertools.repeat(host.port)
        return
    spawn = multiprocessing.get_context("spawn")
    ports: Queue[int] = spawn.Queue()
    servers = [
        spawn.Process(target=serve, args=(hosts.folder, ports), daemon=True)
        for _ in range(os.cpu_count() or 1)
    ]
    for server in servers:
        server.start()
    yield itertools.cycle([ports.get(timeout=60) for _ in servers])
    for server in servers:
        server.terminate()
        server.join()


def serve(folder: Path, ports: "Queue[int]") -> None:
    """Be a server of asyncssh until the process is ended."""
    server = AsyncsshServer(SshHosts(folder))
    server.start("0.0.0.0")
    ports.put(server.port)
    signal.pause()


def measure(hosts: SshHosts, repeats: int) -> None:
    """Run both in turn, and print how they compare."""
    took: dict[str, list[tuple[float, float]]] = {"asyncssh true": [], "doctor": []}
    for _ in range(repeats):
        took["asyncssh true"].append(timed(lambda: run_true(hosts)))
        took["doctor"].append(timed(lambda: examine(hosts)))
    for name, pairs in took.items():
        wall_s, cpu_s = (statistics.median(each) for each in zip(*pairs, strict=True))
        print(f"{name:20} {wall_s:6.2f} s, {1000 * cpu_s / len(hosts.hosts):4.0f} ms CPU a host")
    pairs = zip(took["doctor"], took["asyncssh true"], strict=True)
    ratios = [(mine[0] / other[0], mine[1] / other[1]) for mine, other in pairs]
    wall, cpu = (statistics.median(each) for each in zip(*ratios, strict=True))
    print(f"doctor / asyncssh  {wall:6.2f} × wall, {cpu:.2f} × CPU, {len(hosts.hosts)} hosts")


def timed(work: Callable[[], Awaitable[None]]) -> tuple[float, float]:
    """Return the wall and CPU time of this process that some work takes."""
    began, began_cpu = time.monotonic(), time.process_time()
    asyncio.run(work())  # type: ignore[arg-type]
    return time.monotonic() - began, time.process_time() - began_cpu


async def run_true(hosts: SshHosts) -> None:
    """Log in to every host, and run `true`."""

    async def one(host: SshHost) -> None:
        async with asyncssh.connect(
            host.address,
            host.port,
            config=None,
            known_hosts=str(hosts.known_hosts),
            client_keys=[str(hosts.client_key)],
        ) as connection:
            await connection.run("true", check=True)

    await asyncio.gather(*map(one, hosts.hosts))


async def examine(hosts: SshHosts) -> None:
    """Have doctor look at every host; all must be well."""

    async def nobody(question: Question) -> str | None:
        return None

    settings = FleetSettings("none", ssh_config=str(hosts.config), stage_timeout_s=120.0)
    named = [Host(host.name, gpus=(), python=sys.executable) for host in hosts.hosts]
    found = await diagnose(named, settings, nobody)
    bad = [one for one in found if one.verdict is Verdict.BAD]
    assert not bad, bad[:3]


if __name__ == "__main__":
    main()
