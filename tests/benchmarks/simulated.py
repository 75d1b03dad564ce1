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
import random
import sys
import time
from pathlib import Path
from typing import Any

import asyncssh

from gputui.agent.versions import installed
from gputui.demo.devices import H200, Gpu
from gputui.fleet.deploy.remote import GREETING
from gputui.protocol import VERSION
from gputui.protocol.agent import (
    MARKER,
    Configure,
    Facts,
    FromAgent,
    Ping,
    Pong,
    Reach,
    Reached,
    Shutdown,
    StartWorkers,
    Telemetry,
    ToAgent,
    WorkerReading,
    WorkerReady,
    WorkerStarted,
)
from gputui.protocol.codec import decode, encode
from gputui.readings import HostReading
from tests.sshd import SshHost, SshHosts

MEMORY_BYTES = 2 * 2**40
VARIANTS = 5
"""Readings of each GPU that take turns: making new ones would cost more than sending them."""


class SimulatedHost:
    """The agent of one host, over one SSH session."""

    def __init__(self, process: "asyncssh.SSHServerProcess[bytes]", gpus: int) -> None:
        self._process = process
        self._gpus = gpus
        self._workers: list[str] = []

    async def serve(self) -> None:
        """Answer until the head is gone, or says that it is over."""
        order = await self._loader_order()
        greeting = {
            "python": sys.executable,
            "version": platform.python_version(),
            "send": False,
            "address": "",
            "time": time.time(),
        }
        assert order["hash"]
        self._process.stdout.write(GREETING + b" " + json.dumps(greeting).encode() + b"\n")
        self._process.stdout.write(MARKER + b"\n")
        configure = decode(await self._process.stdin.readline(), Configure)
        telling = asyncio.create_task(self._tell(configure))
        try:
            while line := await self._process.stdin.readline():
                if not self._take(decode(line, ToAgent)):
                    break
        finally:
            telling.cancel()
            self._process.exit(0)

    async def _loader_order(self) -> dict[str, Any]:
        """Skip the interpreters and the loader's source, and return its order."""
        while (await self._process.stdin.readline()).strip():
            pass
        await self._process.stdin.readline()
        order: dict[str, Any] = json.loads(await self._process.stdin.readline())
        return order

    def _take(self, message: ToAgent) -> bool:
        """Carry out a message; False when it is the last."""
        match message:
            case Ping(number):
                self._say(Pong(number))
            case Reach(host, port):
                self._say(Reached(host, port, ""))
            case StartWorkers(specs, _, listen_host):
                for spec in specs:
                    self._workers.append(spec.name)
                    self._say(WorkerStarted(spec.name, os.getpid(), 0))
                    address = f"tls://{listen_host}:{40_000 + len(self._workers)}"
                    self._say(WorkerReady(spec.name, address, spec.device_uuid))
        return not isinstance(message, Shutdown)

    async def _tell(self, configure: Configure) -> None:
        """Send facts, then telemetry at every interval; hosts are out of step with each other."""
        rng = random.Random(configure.host)
        variants = [self._devices(configure.host, rng) for _ in range(VARIANTS)]
        self._say(_facts(configure.host, variants[0]))
        await asyncio.sleep(configure.telemetry_interval_s * rng.random())
        for devices in itertools.cycle(variants):
            readings = tuple(WorkerReading(name, 99.0, 2**31, 40) for name in self._workers)
            host = HostReading(12.5, 128, MEMORY_BYTES // 4, MEMORY_BYTES, 9.0, 1e6, 1e6, 2**40)
            self._say(Telemetry(time.time(), host, devices, readings))
            await asyncio.sleep(configure.telemetry_interval_s)

    def _devices(self, host: str, rng: random.Random) -> tuple[Any, ...]:
        gpus = [Gpu(str(index), f"GPU-{host}-{index}", H200) for index in range(self._gpus)]
        for gpu in gpus:
            gpu.read(rng, 100.0 * rng.random(), None)
        return tuple(gpu.reading for gpu in gpus)

    def _say(self, message: FromAgent) -> None:
        self._process.stdout.write(encode(message))


def _facts(host: str, devices: tuple[Any, ...]) -> Facts:
    return Facts(
        version=VERSION,
        agent_pid=os.getpid(),
        python=sys.executable,
        python_version=platform.python_version(),
        packages=(*installed(), ("cupy-cuda12x", "14.0")),
        cuda_driver="13.0",
        cpus=128,
        memory_total_bytes=MEMORY_BYTES,
        disk_free_bytes=2**40,
        devices=devices,
        cuda_visible_devices=None,
        running=(),
    )


async def serve(folder: Path, count: int, gpus: int) -> None:
    """Serve so many hosts for ever."""
    hosts = SshHosts(folder)
    hosts.make_keys()
    server = await asyncssh.listen(
        "127.0.0.1",
        0,
        server_host_keys=[str(hosts.host_key)],
        authorized_client_keys=f"{hosts.client_key}.pub",
        process_factory=lambda process: SimulatedHost(process, gpus).serve(),
        encoding=None,
        backlog=count,
    )
    user = os.environ.get("USER", "root")
    names = (f"sim{number:03d}" for number in range(1, count + 1))
    hosts.describe(*(SshHost(name, "127.0.0.1", server.get_port(), user) for name in names))
    print("ready", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
