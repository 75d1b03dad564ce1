"""Hosts with GPUs that are not there, behind one real SSH server: a large fleet, as a head sees it.

    python -m tests.benchmarks.simulated FOLDER 125 8

Prints `ready` when FOLDER has the SSH configuration that reaches them. Each connection is a host:
it answers as the loader and the agent do, sends telemetry every second, and says of workers that
they registered. No worker runs.
"""

import asyncio
import itertools
import json
import os
import platform
import sys
import time
from pathlib import Path
from typing import Any

import asyncssh

from gputui.fleet.deploy.remote import BEGIN, GREETING
from gputui.protocol.agent import MARKER, ToAgent
from gputui.protocol.streams import READ_BYTES
from gputui.protocol.typed_codec import TypedChannel
from tests.benchmarks.fleet import Agent, host_names
from tests.sshd import SshHost, SshHosts


class CommandStream:
    """The agent's end of what a head runs over SSH."""

    def __init__(self, process: "asyncssh.SSHServerProcess[bytes]") -> None:
        self._process = process
        self.write = process.stdout.write
        self.drain = process.stdout.drain

    async def read(self) -> bytes:
        return await self._process.stdin.read(READ_BYTES)

    async def close(self) -> None:
        self._process.exit(0)

    def abort(self) -> None:
        self._process.exit(0)


class Hosts:
    """The agents of all hosts, by the connection that they come over."""

    def __init__(self, gpus: int) -> None:
        self._gpus = gpus
        self._numbers = itertools.count(1)

    async def serve(self, process: "asyncssh.SSHServerProcess[bytes]") -> None:
        """Answer as the loader does, then as the agent, until the head is gone."""
        order = await _loader_order(process)
        greeting = {
            "python": sys.executable,
            "version": platform.python_version(),
            "send": False,
            "address": "",
            "client": "",
            "time": time.time(),
        }
        assert order["hash"]
        begins = b" ".join((GREETING, order["nonce"].encode(), json.dumps(greeting).encode()))
        process.stdout.write(begins + b"\n")
        process.stdout.write(MARKER + b"\n")
        number = next(self._numbers)
        agent = Agent(f"connection-{number}", number, self._gpus)
        await agent.serve(TypedChannel(CommandStream(process), ToAgent))


async def _loader_order(process: "asyncssh.SSHServerProcess[bytes]") -> dict[str, Any]:
    """Skip what a shell reads, the interpreters and the loader's source, and return its order."""
    while (await process.stdin.readline()).strip() != BEGIN.encode():
        pass
    await process.stdin.readline()  # setup=
    while (await process.stdin.readline()).strip():
        pass
    await process.stdin.readline()
    order: dict[str, Any] = json.loads(await process.stdin.readline())
    return order


async def serve(folder: Path, count: int, gpus: int) -> None:
    """Serve so many hosts for ever."""
    hosts, agents = SshHosts(folder), Hosts(gpus)
    hosts.make_keys()
    server = await asyncssh.listen(
        "127.0.0.1",
        0,
        server_host_keys=[str(hosts.host_key)],
        authorized_client_keys=f"{hosts.client_key}.pub",
        process_factory=agents.serve,
        encoding=None,
        backlog=count,
    )
    user = os.environ.get("USER", "root")
    port = server.get_port()
    hosts.describe(*(SshHost(name, "127.0.0.1", port, user) for name in host_names(count)))
    print("ready", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
