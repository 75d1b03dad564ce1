"""Measure a head with thousands of simulated GPUs: real head and fleet, NVML, SSH and Dask played.

    python -m tests.benchmarks.fleet 1000        # hosts of 8 GPUs each
    python -m tests.benchmarks.fleet 125 4
    python -m tests.benchmarks.fleet 64 --ssh    # the same hosts behind a real SSH server, too

Agents, the scheduler and one frontend are processes of their own; what is measured is the head's
alone. Agents answer at once, over a Unix socket a host, and send telemetry every second.
"""

import argparse
import asyncio
import itertools
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType

from gputui.client.head_connection import HeadConnection
from gputui.demo.devices import CONTEXT_BYTES, USER, SimulatedGpu
from gputui.demo.simulated_agent import MEMORY_BYTES, SimulatedAgent
from gputui.fleet.session import AgentChannel, OpenedAgent
from gputui.fleet.stages import Stages
from gputui.head.requests import head_of
from gputui.head.scheduler_process import start_scheduler
from gputui.model.examination import ExaminedHost, ExaminedWorker, ThreadStack
from gputui.model.hosts import Host
from gputui.model.readings import DeviceProcess, DeviceReading, HostReading, Owner
from gputui.model.snapshot import Event, HostState, Snapshot
from gputui.process.lifetime import look_rarely
from gputui.process.procfs import TICKS_PER_S, process_stat
from gputui.protocol.agent import (
    Examine,
    FromAgent,
    HostExamined,
    Telemetry,
    ToAgent,
    WorkerReading,
)
from gputui.protocol.frontend import EventHappened, Scale, SnapshotTaken
from gputui.protocol.scheduler import (
    ConfigureScheduler,
    Counts,
    Retire,
    Retired,
    SchedulerStarted,
    StopScheduler,
    ToScheduler,
    WorkerCounts,
)
from gputui.protocol.starter import ConfigureHead
from gputui.protocol.streams import SocketStream
from gputui.protocol.typed_codec import TypedChannel, encode

VARIANTS = 5
"""Readings of each host that take turns: making new ones would cost more than sending them."""
STEADY_S = 20.0
AWAY_S = 4.0
EXAMINING_S = 0.5
STAGE_S = 60.0
"""The agents share the cores of this machine with the head, and are not to fail for that."""
BOUND_S = 300.0
CONFIG = "ssh_config"
"""What the file is called that `simulated` writes."""


def host_names(hosts: int) -> list[str]:
    return [f"sim{number:04d}" for number in range(1, hosts + 1)]


class Agents:
    """All agents, in one process: the first line of a connection names its host."""

    def __init__(self, gpus: int) -> None:
        self._gpus = gpus
        self._agents: dict[str, Agent] = {}
        self._away = frozenset[str]()

    async def serve(self, path: str, lost: int) -> None:
        server = await asyncio.start_unix_server(self._meet, path, backlog=4096)
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGUSR1, lambda: self._lose(lost))
        loop.add_signal_handler(signal.SIGUSR2, lambda: self._lose(0))
        print("ready", flush=True)
        async with server:
            await asyncio.to_thread(sys.stdin.buffer.read)

    def _lose(self, number: int) -> None:
        self._away = frozenset(itertools.islice(self._agents, number))
        for name in self._away:
            self._agents[name].cut()

    async def _meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host = (await reader.readline()).decode().strip()
        if host in self._away:
            writer.close()
            return
        agent = self._agents.setdefault(host, Agent(host, len(self._agents) + 1, self._gpus))
        await agent.serve(TypedChannel(SocketStream(reader, writer), ToAgent))


class Agent(SimulatedAgent):
    """One agent, with the lines of its telemetry made once.

    Making them would cost more than sending them: the head, on the same cores, would be slower.
    """

    def __init__(self, host: str, number: int, gpus: int) -> None:
        found = [SimulatedGpu(str(label), f"GPU-{host}-{label}") for label in range(gpus)]
        super().__init__(host, number, found)
        self._variants = [tuple(self._read(gpu) for gpu in found) for _ in range(VARIANTS)]
        self._lines: Iterator[bytes] = iter(())
        self._made_for: tuple[str, ...] = ()

    async def serve(self, channel: TypedChannel[FromAgent, ToAgent]) -> None:
        """Begin each connection with whole telemetry."""
        self._lines = iter(())
        await super().serve(channel)

    def take(self, message: ToAgent) -> None:
        """Answer an examination as late, and with as many stacks, as an agent of busy workers."""
        if isinstance(message, Examine):
            examined = HostExamined(message.request, self.examined())
            self._later(EXAMINING_S, lambda: self.say(examined))
        else:
            super().take(message)

    def examined(self) -> ExaminedHost:
        """Return workers with ten threads each."""
        threads = tuple(
            ThreadStack(f"Dask-{number}", tuple(f"x/mine.py:{line} f" for line in range(30)))
            for number in range(10)
        )
        workers = (
            ExaminedWorker(each.name, each.pid, "S", answered=True, threads=threads)
            for each in self.workers.values()
        )
        return ExaminedHost(self.host, tuple(workers))

    def say(self, message: FromAgent) -> None:
        """Send a message; telemetry as lines that were made once, what is in them in turn."""
        if not isinstance(message, Telemetry):
            super().say(message)
            return
        names = tuple(self.workers)
        line = next(self._lines, b"") if names == self._made_for else b""
        if not line:
            self._made_for, self._lines = names, self._lines_of(message.at)
            line = next(self._lines)
        if self._channel is not None:
            self._channel.stream.write(line)

    def _lines_of(self, at: float) -> Iterator[bytes]:
        """Give readings for ever, each unlike the one before."""
        return itertools.cycle([encode(self.reading(turn, at)) for turn in range(VARIANTS)])

    def _read(self, gpu: SimulatedGpu) -> DeviceReading:
        """Return a reading in which all is another value that changes on a GPU at work."""
        command = f"gputui worker {self.host}:gpu{gpu.label}"
        process = DeviceProcess(1, Owner.OURS, USER, command, CONTEXT_BYTES + 2**36)
        reading = gpu.read(self.rng, 100.0 * self.rng.random(), process)
        by = self.rng.randrange(2**33)
        return replace(
            reading,
            memory_used_bytes=(reading.memory_used_bytes or 0) + by,
            sm_clock_mhz=1500 + self.rng.randrange(480),
            processes=tuple(
                replace(each, memory_bytes=(each.memory_bytes or 0) + by)
                for each in reading.processes
            ),
        )

    def telemetry(self) -> Telemetry:
        """Return the first of the readings."""
        return self.reading(0)

    def reading(self, turn: int, at: float | None = None) -> Telemetry:
        """Return what it reads in one of `VARIANTS` turns, `at` or now and a second a turn."""
        at = time.time() if at is None else at
        busy = 10 + turn
        readings = tuple(
            WorkerReading(
                name,
                cpu_percent=90.0 + (busy + place) % 10,
                rss_bytes=2**31 + busy * 2**20,
                open_files=40,
            )
            for place, name in enumerate(self.workers)
        )
        host = HostReading(
            float(busy), busy * 2**30, MEMORY_BYTES, 0.5 * busy, 1e6 * busy, 9e5 * busy
        )
        return Telemetry(at + turn, host, self._variants[turn], readings)


class Opener:
    """Opens channels to the simulated agents."""

    def __init__(self, path: str) -> None:
        self._path = path

    async def open(self, host: Host, stages: Stages) -> OpenedAgent:
        async with stages.enter(HostState.CONNECTING, "no answer"):
            try:
                stream = HostStream(*await asyncio.open_unix_connection(self._path))
            except OSError as error:
                raise stages.error(str(error), transient=True) from error
            stream.write(f"{host.name}\n".encode())
        number = int(host.name[3:])
        return OpenedAgent(
            AgentChannel(stream), "10.0.0.1", f"10.1.{number // 250}.{number % 250 + 1}"
        )

    async def close(self) -> None:
        return


class HostStream(SocketStream):
    """A socket in place of a command's pipes."""

    stderr_tail: tuple[str, ...] = ()

    async def exit_status(self) -> int | None:
        return None


def counts_of(names: Iterable[str], rng: random.Random) -> Counts:
    """Return counts in which those of every worker at work are others each time."""
    workers = tuple(
        WorkerCounts(
            name=name,
            status="running",
            executing=int(rng.random() < 0.9),
            ready=rng.randrange(5),
            in_memory=rng.randrange(40),
            managed_bytes=rng.randrange(2**33),
            spilled_bytes=0,
            current_task=rng.choice(("matmul", "sum", None)),
        )
        for name in names
    )
    return Counts(workers, (), 100_000, 5_000, 1, 0)


async def schedule(names: list[str]) -> None:
    """Be a scheduler that knows these workers, and counts them every second."""
    channel = TypedChannel(await SocketStream.of_pipes(0, os.dup(1)), ToScheduler)
    rng = random.Random(0)
    variants = itertools.cycle([counts_of(names, rng) for _ in range(VARIANTS)])

    async def count() -> None:
        while True:
            channel.send(next(variants))
            await asyncio.sleep(1.0)

    counting: asyncio.Task[None] | None = None
    async for message in channel:
        match message:
            case ConfigureScheduler():
                channel.send(SchedulerStarted(40_000))
                counting = asyncio.create_task(count())
            case Retire(request, retired):
                channel.send(Retired(request, retired))
            case StopScheduler():
                break
    if counting is not None:
        counting.cancel()
    await channel.close()


async def head(path: str, hosts: int, gpus: int) -> None:
    """Be the head, until stdin ends; `path` is the agents' socket or an SSH configuration."""
    hosts_text = ",".join(host_names(hosts))
    ssh = path.endswith(CONFIG)
    config = ConfigureHead(
        "benchmark",
        hosts_text,
        cluster_id="bench",
        stage_timeout_s=STAGE_S,
        ssh_config=path if ssh else None,
    )
    command = (sys.executable, "-m", __spec__.name, "--be", "scheduler", str(hosts), str(gpus))
    scheduler = partial(start_scheduler, command=command)
    look_rarely()
    one = head_of(config, opener=None if ssh else Opener(path), scheduler=scheduler)
    loop = asyncio.get_running_loop()
    loop.add_reader(0, lambda: os.read(0, 1) or (loop.remove_reader(0), one.stop("over")))
    await one.run(lambda socket: print(socket, flush=True))


class Process:
    """A part of this benchmark in a process of its own."""

    def __init__(self, *arguments: str, module: str = __spec__.name) -> None:
        command = (sys.executable, "-m", module, *arguments)
        self.began = time.monotonic()
        pipe = subprocess.PIPE
        # A head writes its events there, thousands of them.
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL)

    def first_line(self) -> str:
        assert self.process.stdout
        return self.process.stdout.readline().decode().strip()

    def __enter__(self) -> "Process":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()


class Screen:
    """The one frontend: the newest snapshot, and all events."""

    def __init__(self, link: HeadConnection) -> None:
        self.snapshot: Snapshot | None = None
        self.events: list[Event] = []
        self.link = link
        self._heard = asyncio.Event()
        self._task = asyncio.create_task(self._listen())

    async def _listen(self) -> None:
        async for message in self.link.messages():
            match message:
                case SnapshotTaken(snapshot):
                    self.snapshot = snapshot
                case EventHappened(event):
                    self.events.append(event)
            self._heard.set()

    async def until(self, condition: Callable[[Snapshot], bool]) -> float:
        """Wait, and return how many seconds it took."""
        began = time.monotonic()
        async with asyncio.timeout(BOUND_S):
            while self.snapshot is None or not condition(self.snapshot):
                self._heard.clear()
                await self._heard.wait()
        return time.monotonic() - began

    async def up(self, workers: int) -> float:
        return await self.until(lambda snapshot: snapshot.workers_up == workers)


def cost(pid: int) -> tuple[float, float]:
    """Return the seconds of CPU and the MB of memory of a process."""
    stat = process_stat(pid)
    assert stat
    return stat.cpu_ticks / TICKS_PER_S, stat.rss_bytes / 1e6


async def measure(hosts: int, gpus: int) -> None:
    workers = hosts * gpus
    with (
        tempfile.TemporaryDirectory(prefix="gt-") as folder,
        Process("--be", "agents", f"{folder}/agents", str(hosts), str(gpus)) as agents,
    ):
        os.environ["XDG_RUNTIME_DIR"] = os.environ["XDG_STATE_HOME"] = folder
        agents.first_line()
        with Process("--be", "head", f"{folder}/agents", str(hosts), str(gpus)) as process:
            socket = await asyncio.to_thread(process.first_line)
            screen = Screen(await HeadConnection.open(socket, frontend="screen", snapshots=True))
            pid = process.process.pid
            await screen.up(workers)
            before, began = cost(pid), time.monotonic()
            print(
                f"{workers} GPUs on {hosts} hosts: all up after {began - process.began:.1f} s, "
                f"{before[0]:.1f} s of CPU"
            )
            await asyncio.sleep(STEADY_S)
            cpu_s, memory = cost(pid)
            share = 100 * (cpu_s - before[0]) / (time.monotonic() - began)
            print(f"steady, 1 Hz, one frontend: {share:.0f} % of a core, {memory:.0f} MB")
            for number in (workers // 2, workers):
                began = time.monotonic()
                await screen.link.request(Scale(0, number))
                await screen.up(number)
                print(f"scaled to {number}: {time.monotonic() - began:.1f} s")
            lost, began = min(100, hosts // 2), time.monotonic()
            agents.process.send_signal(signal.SIGUSR1)
            away = HostState.RECONNECTING
            await screen.until(lambda s: sum(h.state is away for h in s.hosts) == lost)
            await asyncio.sleep(AWAY_S)
            away_s = time.monotonic() - began
            agents.process.send_signal(signal.SIGUSR2)
            took = await screen.until(lambda s: all(h.state is HostState.READY for h in s.hosts))
            leases = sum(event.kind == "lost" for event in screen.events)
            print(f"{lost} hosts lost for {away_s:.1f} s: back after {took:.1f} s, {leases} leases")
            print(f"in the end {cost(pid)[1]:.0f} MB")
            await screen.link.close()


async def compare(hosts: int, gpus: int) -> None:
    """Print what the head spends on the same hosts over sockets and over SSH."""
    spent = {}
    for over in ("sockets", "ssh"):
        with tempfile.TemporaryDirectory(prefix="gt-") as name:
            folder, size = Path(name), (str(hosts), str(gpus))
            os.environ["XDG_RUNTIME_DIR"] = os.environ["XDG_STATE_HOME"] = name
            where = folder / (CONFIG if over == "ssh" else "agents")
            if over == "ssh":
                agents = Process(name, *size, module="tests.benchmarks.simulated")
            else:
                agents = Process("--be", "agents", str(where), *size)
            with agents:
                agents.first_line()
                with Process("--be", "head", str(where), *size) as process:
                    socket = await asyncio.to_thread(process.first_line)
                    link = await HeadConnection.open(socket, frontend="screen", snapshots=True)
                    screen = Screen(link)
                    pid = process.process.pid
                    await screen.up(hosts * gpus)
                    up_s = cost(pid)[0]
                    began = time.monotonic()
                    await asyncio.sleep(STEADY_S)
                    steady = (cost(pid)[0] - up_s) / (time.monotonic() - began)
                    await link.close()
        spent[over] = up_s, steady
        print(
            f"{over:8} {1000 * up_s / hosts:5.0f} ms of CPU a host until all are up, "
            f"then {100 * steady:.1f} % of a core"
        )
    shares = [100 * (1 - a / b) for a, b in zip(spent["sockets"], spent["ssh"], strict=True)]
    print(f"SSH's share: {shares[0]:.0f} % of the start, {shares[1]:.0f} % of the rest")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--be", nargs="+", default=[])
    parser.add_argument("--ssh", action="store_true")
    parser.add_argument("hosts", type=int, nargs="?", default=1000)
    parser.add_argument("gpus", type=int, nargs="?", default=8)
    arguments = parser.parse_args()
    match arguments.be:
        case ["agents", path, hosts, gpus]:
            asyncio.run(Agents(int(gpus)).serve(path, min(100, int(hosts) // 2)))
        case ["scheduler", hosts, gpus]:
            labels = [f":gpu{label}" for label in range(int(gpus))]
            asyncio.run(schedule([h + label for h in host_names(int(hosts)) for label in labels]))
        case ["head", path, hosts, gpus]:
            asyncio.run(head(path, int(hosts), int(gpus)))
        case _ if arguments.ssh:
            asyncio.run(compare(arguments.hosts, arguments.gpus))
        case _:
            asyncio.run(measure(arguments.hosts, arguments.gpus))


if __name__ == "__main__":
    main()
