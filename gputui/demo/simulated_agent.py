"""The agent of a host that is not there: it answers a head as an agent does, and runs no worker.

One implementation for the demo, the tests of a fleet and the benchmark of a head. What happens to
a host or its workers is done to the agent: `cut`, `end`, `crash`, `silent`, `reachable`.
"""

import asyncio
import os
import platform
import random
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from gputui.agent.packages import installed
from gputui.demo.devices import SimulatedGpu
from gputui.demo.simulated_runs import Stage
from gputui.fleet.session import AgentChannel, OpenedAgent
from gputui.fleet.stages import Stages
from gputui.model.examination import ExaminedHost, ExaminedWorker, ThreadStack
from gputui.model.hosts import Host
from gputui.model.plan import WorkerSpec
from gputui.model.readings import DeviceProcess, HostReading
from gputui.model.snapshot import HostState
from gputui.process.background import Background
from gputui.protocol.agent import (
    Configure,
    Examine,
    Facts,
    FromAgent,
    HostExamined,
    Listen,
    Listening,
    Ping,
    Pong,
    Reach,
    Reached,
    RestartWorkers,
    Shutdown,
    StartWorkers,
    StopWorkers,
    Telemetry,
    ToAgent,
    WorkerExited,
    WorkerReading,
    WorkerReady,
    WorkerStarted,
)
from gputui.protocol.shared import FollowLogs, LogLines
from gputui.protocol.streams import MemoryStream
from gputui.protocol.typed_codec import TypedChannel

PACKAGES = (*installed(), ("cupy-cuda12x", "14.0"))
CPUS = 128
MEMORY_BYTES = 2 * 2**40
LINES_KEPT = 200
STAGES = (HostState.RESOLVING, HostState.CONNECTING, HostState.AUTHENTICATING)
STAGE_S = (0.1, 0.6)
"""The shortest and the longest time that a stage takes, at a pace of 1."""


@dataclass(slots=True, eq=False)
class SimulatedWorker:
    """A worker that an agent says it has, and the task it has in hand."""

    name: str
    pid: int
    agent: "SimulatedAgent"
    restarts: int = 0
    gpu: SimulatedGpu | None = None
    address: str = ""
    seen_uuid: str | None = None
    """The GPU that it says its CUDA context is on."""
    percent: float = 0.0
    """Utilisation of its GPU."""
    process: DeviceProcess | None = None
    """Itself, as its GPU knows it."""
    spilled_bytes: int = 0
    stage: Stage | None = None
    """That of its task."""
    began_at: float = 0.0
    ends_at: float = 0.0


class AgentStream(MemoryStream):
    """The head's end of a connection to a simulated agent."""

    stderr_tail: tuple[str, ...] = ()
    ended: int | None = None

    async def exit_status(self) -> int | None:
        """Return 0 where the agent ended, None where the connection was cut."""
        return self.ended


class SimulatedAgent:
    """The agent of a host; with a `pace` of 0 it and its workers take no time for anything."""

    def __init__(
        self,
        host: str,
        number: int,
        gpus: Sequence[SimulatedGpu],
        *,
        seed: int = 0,
        pace: float = 0.0,
    ) -> None:
        self.host, self.number, self.gpus = host, number, gpus
        self.address = f"10.{number // 62_500}.{number // 250 % 250}.{number % 250 + 2}"
        self.pace = pace
        """A factor on all its delays; 0 is immediate."""
        self.rng = random.Random(f"{seed}:{host}")
        self.workers: dict[str, SimulatedWorker] = {}
        self.registers = True
        self.reachable = True
        self.silent = False
        """Whether nothing reaches it or comes from it."""
        self.reach_error = ""
        """Why it cannot reach the scheduler."""
        self.refused: tuple[HostState, str, str, str] | None = None
        """In which stage SSH is refused, the reason, the hint, and what ssh said."""
        self.mends = False
        """Whether SSH is refused only once."""
        self.packages: tuple[tuple[str, str], ...] = PACKAGES
        self._pids = 1000 * number
        self._follows = False
        self._printed: deque[LogLines] = deque(maxlen=LINES_KEPT)
        self._channel: TypedChannel[FromAgent, ToAgent] | None = None
        self._stream: AgentStream | None = None
        self._tasks = Background(lambda _what, _error: self.end())

    def connect(self) -> AgentStream:
        """Return the head's end of a connection within this process."""
        self._stream, own = AgentStream(), MemoryStream()
        self._stream.peer, own.peer = own, self._stream
        self._tasks.start(self.serve(TypedChannel(own, ToAgent)), f"agent of {self.host}")
        return self._stream

    async def serve(self, channel: TypedChannel[FromAgent, ToAgent]) -> None:
        """Answer a head until it is gone."""
        self._channel = channel
        telling: asyncio.Task[None] | None = None
        try:
            async for message in channel:
                if self.silent:
                    continue
                self.take(message)
                if isinstance(message, Configure):
                    telling = self._tasks.start(self._tell(message, channel), "telemetry")
        finally:
            if telling is not None:
                telling.cancel()
            await channel.close()

    async def _tell(self, configure: Configure, channel: TypedChannel[FromAgent, ToAgent]) -> None:
        """Send facts, then telemetry at every interval; hosts are out of step with each other."""
        await asyncio.sleep(self.rng.uniform(0.1, 0.5) * self.pace)
        interval_s = configure.telemetry_interval_s
        self.say(self.facts())
        self.say(self.telemetry())
        await asyncio.sleep(self.rng.random() * interval_s)
        while self._channel is channel:
            self.say(self.telemetry())
            await asyncio.sleep(interval_s)

    def say(self, message: FromAgent) -> None:
        """Send a message, lost where nothing connects this agent with a head."""
        if self._channel is not None and not self.silent:
            self._channel.send(message)

    def print(self, worker: str, lines: Iterable[str]) -> None:
        """Have a worker print something."""
        printed = LogLines(worker, tuple(lines), time.time())
        self._printed.append(printed)
        if self._follows:
            self.say(printed)

    def cut(self) -> None:
        """Cut the connection; the agent and its workers stay."""
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.abort()

    def end(self) -> None:
        """End the agent, with its workers."""
        self.workers.clear()
        if self._stream is not None:
            self._stream.ended = 0
        self.cut()

    def take(self, message: ToAgent) -> None:
        """Carry a message out; `Configure` is `serve`'s to answer."""
        match message:
            case Reach(number):
                delay_s = self.rng.uniform(0.1, 0.8) * self.pace
                self._later(delay_s, lambda: self.say(Reached(number, self.reach_error)))
            case Listen(number):
                self.say(Listening(number, 0))
            case Ping(number):
                self.say(Pong(number))
            case Examine(number):
                self.say(HostExamined(number, self.examined()))
            case StartWorkers(specs=specs):
                for spec in specs:
                    self.start(spec)
            case StopWorkers(names=names):
                for name in names:
                    self.crash(name, "stopped", kind="stopped", again_s=None)
            case RestartWorkers(names=names):
                for name in names:
                    self.crash(name, "restarted on request", kind="stopped")
            case FollowLogs(on):
                for lines in list(self._printed) if on and not self._follows else ():
                    self.say(replace(lines, earlier=True))
                self._follows = on
            case Shutdown():
                self.end()

    def examined(self) -> ExaminedHost:
        """Return an examination in which every worker waits."""
        main = ThreadStack("MainThread", ("python3.11/selectors.py:468 select",))
        workers = (
            ExaminedWorker(each.name, each.pid, "S", answered=True, threads=(main,))
            for each in self.workers.values()
        )
        return ExaminedHost(self.host, tuple(workers))

    def start(self, spec: WorkerSpec) -> None:
        """Start a worker, or say again that it runs."""
        if spec.name not in self.workers:
            gpu = next((gpu for gpu in self.gpus if gpu.uuid == spec.device_uuid), None)
            self._pids += 1
            self.workers[spec.name] = SimulatedWorker(
                spec.name,
                self._pids,
                self,
                gpu=gpu,
                seen_uuid=spec.device_uuid,
            )
        self.fork(self.workers[spec.name])

    def fork(self, worker: SimulatedWorker) -> None:
        """Report that a worker runs, and register it after a delay."""
        if self.workers.get(worker.name) is worker:
            self.say(WorkerStarted(worker.name, worker.pid, worker.restarts))
            delay_s = 0.0 if worker.address else self.rng.uniform(0.8, 2.4) * self.pace
            self._later(delay_s, lambda: self._register(worker))

    def _register(self, worker: SimulatedWorker) -> None:
        if self.registers and self.workers.get(worker.name) is worker:
            port = 36_000 + worker.pid % 20_000
            worker.address = worker.address or f"tls://{self.address}:{port}"
            self.say(WorkerReady(worker.name, worker.address, worker.seen_uuid))

    def crash(
        self,
        name: str,
        reason: str,
        *,
        kind: str = "crashed",
        last: tuple[str, ...] = (),
        again_s: float | None = 0.0,
    ) -> None:
        """End a worker, and start it again after a while; None is for good."""
        worker = self.workers.pop(name, None)
        if worker is None:
            return
        self.print(name, last)
        loop = again_s is None and kind != "stopped"
        self.say(WorkerExited(name, kind, reason, again_s, loop))
        if again_s is not None:
            self._pids += 1
            again = replace(
                worker,
                pid=self._pids,
                restarts=worker.restarts + 1,
                address="",
                percent=0.0,
                process=None,
                stage=None,
            )
            self.workers[name] = again
            self._later(again_s, lambda: self.fork(again))

    def _later(self, seconds: float, act: Callable[[], None]) -> None:
        if seconds:
            asyncio.get_running_loop().call_later(seconds, act)
        else:
            act()

    def facts(self) -> Facts:
        """Describe the host, as a real agent does."""
        return Facts(
            agent_pid=os.getpid(),
            python=sys.executable,
            python_version=platform.python_version(),
            packages=self.packages,
            cuda_driver="13.0",
            cpus=CPUS,
            memory_total_bytes=MEMORY_BYTES,
            disk_free_bytes=2**40,
            devices=tuple(gpu.read(self.rng) for gpu in self.gpus),
            cuda_visible_devices=None,
            running=tuple(WorkerStarted(w.name, w.pid, w.restarts) for w in self.workers.values()),
        )

    def telemetry(self) -> Telemetry:
        """Read the host's simulated sensors."""
        rng = self.rng
        loads = {id(each.gpu): (each.percent, each.process) for each in self.workers.values()}
        busy = sum(percent > 0 for percent, _ in loads.values())
        readings = tuple(
            WorkerReading(
                each.name,
                cpu_percent=float(round(rng.uniform(88, 104) if busy else rng.uniform(1, 4))),
                rss_bytes=(480 << 20) + each.spilled_bytes // 8,
                open_files=38,
            )
            for each in self.workers.values()
        )
        host = HostReading(
            cpu_percent=float(round(min(100.0, 100 * (busy + rng.random()) / CPUS + 1))),
            memory_used_bytes=6 * 2**30 + sum(each.rss_bytes or 0 for each in readings),
            memory_total_bytes=MEMORY_BYTES,
            load_1m=round(busy * 1.1 + rng.random() * 0.5, 1),
            network_receive_bytes_per_s=float(round(busy * rng.uniform(4e6, 9e6) + 2e4)),
            network_send_bytes_per_s=float(round(busy * rng.uniform(3e6, 8e6) + 3e4)),
        )
        devices = tuple(gpu.read(rng, *loads.get(id(gpu), ())) for gpu in self.gpus)
        return Telemetry(time.time(), host, devices, readings)


class SimulatedHosts:
    """Opens channels to simulated agents, which are there before anybody connects."""

    def __init__(self, new_agent: Callable[[str, int], SimulatedAgent]) -> None:
        self.agents: dict[str, SimulatedAgent] = {}
        self._new_agent = new_agent

    def agent(self, host: str) -> SimulatedAgent:
        """Return the agent of a host."""
        if host not in self.agents:
            self.agents[host] = self._new_agent(host, len(self.agents) + 1)
        return self.agents[host]

    async def open(self, host: Host, stages: Stages) -> OpenedAgent:
        """Open a channel; raises HostError with the stage it failed in, in the words of SSH's."""
        agent = self.agent(host.name)
        pace = agent.pace * (0.1 if agent.workers else 1.0)
        for state in STAGES:
            async with stages.enter(state, "no answer"):
                await asyncio.sleep(agent.rng.uniform(*STAGE_S) * pace)
                if not agent.reachable:
                    raise stages.error("no route to host", transient=True)
                if agent.refused and agent.refused[0] is state:
                    _, reason, hint, said = agent.refused
                    agent.refused = None if agent.mends else agent.refused
                    raise stages.error(reason, hint, stderr_tail=(said,))
        return OpenedAgent(AgentChannel(agent.connect()), "10.0.0.1", agent.address)

    async def close(self) -> None:
        """Close nothing: the channels have nothing in common."""
