"""Agents that are played in memory, through the codec, for tests of a whole fleet."""

import asyncio
import contextlib
import os
import platform
import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from gputui.agent.versions import installed
from gputui.errors import HeadError
from gputui.fleet.deploy.opening import Opened
from gputui.fleet.desired import Desired
from gputui.fleet.fleet import Fleet
from gputui.fleet.link import AgentLink
from gputui.fleet.settings import FleetSettings
from gputui.fleet.stages import Question, Stages
from gputui.hosts import Host
from gputui.protocol import VERSION
from gputui.protocol.agent import (
    Configure,
    Facts,
    FollowLogs,
    FromAgent,
    Ping,
    Pong,
    Reach,
    Reached,
    RunningWorker,
    Shutdown,
    StartWorkers,
    StopWorkers,
    Telemetry,
    ToAgent,
    WorkerExited,
    WorkerReady,
    WorkerStarted,
)
from gputui.protocol.codec import decode, encode
from gputui.protocol.shared import LogLines
from gputui.readings import DeviceReading, HostReading
from gputui.snapshot import HostState, Severity

BOUND_S = 10.0
GIB = 2**30
PACKAGES = (*installed(), ("cupy-cuda12x", "14.0"))


class MemoryStream:
    """The head's end of a link to a simulated agent."""

    def __init__(self, agent: "SimulatedAgent") -> None:
        self.stderr_tail = ()
        self.ended: int | None = None
        self._agent = agent
        self._chunks: deque[bytes] = deque()
        self._arrived = asyncio.Event()

    async def read(self) -> bytes:
        while not self._chunks:
            self._arrived.clear()
            await self._arrived.wait()
        return self._chunks.popleft()

    def write(self, data: bytes) -> None:
        """Reach the agent, unless the connection is cut: then nobody says so."""
        if self._agent.hears(self):
            for line in data.splitlines(keepends=True):
                self._agent.take(decode(line, ToAgent))

    def say(self, data: bytes) -> None:
        self._chunks.append(data)
        self._arrived.set()

    async def drain(self) -> None:
        return

    def abort(self) -> None:
        self._agent.let_go(self)

    async def exit_status(self) -> int | None:
        return self.ended

    async def close(self) -> None:
        self._agent.let_go(self)


class SimulatedAgent:
    """The agent of a host whose workers register at once, unless it is told otherwise."""

    def __init__(self, number: int, gpus: int) -> None:
        self.number, self.gpus = number, gpus
        self.workers: dict[str, RunningWorker] = {}
        self.taken: list[ToAgent] = []
        self.coming_back: dict[str, RunningWorker] = {}
        """Those that ended, and are started again right after the next `Facts`."""
        self.registers = True
        self.reachable = True
        self.packages: tuple[tuple[str, str], ...] = PACKAGES
        self.machine = ""
        """Another host's name, to have that one's GPUs."""
        self._stream: MemoryStream | None = None

    def connect(self) -> MemoryStream:
        self._stream = MemoryStream(self)
        return self._stream

    def hears(self, stream: MemoryStream) -> bool:
        return self._stream is stream

    def let_go(self, stream: MemoryStream) -> None:
        if self._stream is stream:
            self._stream = None

    def say(self, message: FromAgent) -> None:
        self.say_line(encode(message))

    def say_line(self, line: bytes) -> None:
        if self._stream is not None:
            self._stream.say(line)

    def cut(self) -> None:
        """Cut the connection; the agent and its workers stay."""
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.say(b"")

    def end(self) -> None:
        """End the agent, with its workers."""
        self.workers.clear()
        self.coming_back.clear()
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.ended = 0
            stream.say(b"")

    def close_workers(self) -> None:
        """End the workers as a scheduler does that lost them; all come back by themselves."""
        for name, worker in self.workers.items():
            again = replace(worker, pid=worker.pid + 1, restarts=worker.restarts + 1)
            self.coming_back[name] = again
        self.workers.clear()

    def take(self, message: ToAgent) -> None:
        self.taken.append(message)
        match message:
            case Configure(host=host):
                self.say(self.facts(host))
                self.say(Telemetry(time.time(), HostReading(), self.devices(host), ()))
                for name in list(self.coming_back):
                    self.start(name, None)
            case Reach(host, port):
                self.say(Reached(host, port, ""))
            case Ping(number):
                self.say(Pong(number))
            case StartWorkers(specs=specs):
                for spec in specs:
                    self.start(spec.name, spec.device_uuid)
            case StopWorkers(names=names):
                for name in names:
                    if self.workers.pop(name, None):
                        self.say(exited(name, kind="stopped", reason="stopped"))
            case Shutdown():
                self.end()

    def start(self, name: str, device_uuid: str | None) -> None:
        if name not in self.workers:
            new = RunningWorker(name, 1000 + len(self.taken), 0)
            self.workers[name] = self.coming_back.pop(name, new)
        worker = self.workers[name]
        self.say(WorkerStarted(name, worker.pid, worker.restarts))
        if self.registers:
            self.say(WorkerReady(name, f"tls://10.0.1.{self.number}:{worker.pid}", device_uuid))

    def facts(self, host: str) -> Facts:
        return Facts(
            version=VERSION,
            agent_pid=os.getpid(),
            python=sys.executable,
            python_version=platform.python_version(),
            packages=self.packages,
            cuda_driver="13.0",
            cpus=8,
            memory_total_bytes=64 * GIB,
            disk_free_bytes=64 * GIB,
            devices=self.devices(host),
            cuda_visible_devices=None,
            running=tuple(self.workers.values()),
        )

    def devices(self, host: str) -> tuple[DeviceReading, ...]:
        return tuple(
            DeviceReading(uuid=f"GPU-{self.machine or host}-{label}", label=str(label), name="H200")
            for label in range(self.gpus)
        )


def exited(name: str, **values: object) -> WorkerExited:
    """Return the end of a worker, that of a crash unless `values` say otherwise."""
    usual = {"pid": 7, "kind": "crashed", "reason": "it fell", "exit_code": 1, "signal": None}
    usual |= {"log_tail": (), "restart_in_s": None, "parked": False}
    return WorkerExited(**{"name": name, **usual, **values})


class SimulatedHosts:
    """Opens links to simulated agents."""

    def __init__(self, gpus: int) -> None:
        self.agents: dict[str, SimulatedAgent] = {}
        self.gpus = gpus

    async def open(self, host: Host, stages: Stages) -> Opened:
        async with stages.enter(HostState.CONNECTING, "no answer"):
            agent = self.agent(host.name)
            if not agent.reachable:
                raise stages.error("connection refused", transient=True)
        return Opened(AgentLink(agent.connect()), "10.0.0.1", f"10.0.1.{agent.number}")

    def agent(self, host: str) -> SimulatedAgent:
        """Return the agent of a host; it is there before anybody connects."""
        return self.agents.setdefault(host, SimulatedAgent(len(self.agents) + 1, self.gpus))

    async def close(self) -> None:
        return


@dataclass
class Head:
    """What a fleet needs of its head."""

    changed: asyncio.Event = field(default_factory=asyncio.Event)
    events: list[tuple[Severity, str, str, str]] = field(default_factory=list)
    restarted: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    logs: list[LogLines] = field(default_factory=list)
    scheduler_there: bool = True

    def fleet_changed(self) -> None:
        self.changed.set()

    def tell(self, severity: Severity, subject: str, kind: str, text: str) -> None:
        self.events.append((severity, subject, kind, text))
        self.changed.set()

    def worker_restarted(self, name: str) -> None:
        self.restarted.append(name)

    def logs_printed(self, lines: LogLines) -> None:
        self.logs.append(lines)

    async def ask(self, host: str, question: Question) -> str | None:
        return None

    async def retire(self, names: tuple[str, ...]) -> tuple[str, ...]:
        if not self.scheduler_there:
            raise HeadError("no scheduler")
        return names

    def remove(self, names: tuple[str, ...], reason: str) -> None:
        self.removed.extend(names)


class SimulatedFleet:
    """A fleet on simulated hosts, and its head."""

    def __init__(self, hosts: int, gpus: int = 2, **settings: object) -> None:
        usual = {"lease_s": 30.0, "reconnect_s": (0.01,)}
        self.head, self.hosts = Head(), SimulatedHosts(gpus)
        self.fleet = Fleet(
            FleetSettings("test", **{**usual, **settings}), Desired(), self.head, self.hosts
        )
        self.fleet.add_hosts(Host(f"h{number}") for number in range(hosts))
        self.fleet.scheduler_listens(8786)

    async def until(self, condition: Callable[[], object], bound_s: float = BOUND_S) -> None:
        try:
            async with asyncio.timeout(bound_s):
                while not condition():
                    self.head.changed.clear()
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(self.head.changed.wait(), 0.02)
        except TimeoutError:
            raise AssertionError(f"not within {bound_s} s: {self.head.events[-9:]}") from None

    async def up(self, workers: int) -> None:
        await self.until(lambda: len(self.fleet.worker_table.up) == workers)

    def agent(self, host: str = "h0") -> SimulatedAgent:
        return self.hosts.agent(host)

    def followed(self, host: str = "h0") -> list[FollowLogs]:
        return [each for each in self.agent(host).taken if isinstance(each, FollowLogs)]
