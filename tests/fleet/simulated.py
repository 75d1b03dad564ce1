"""A whole fleet on simulated agents, in memory, through the codec."""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from gputui.demo.devices import SimulatedGpu
from gputui.demo.simulated_agent import SimulatedAgent, SimulatedHosts, SimulatedWorker
from gputui.errors import HeadError
from gputui.fleet.desired import Desired
from gputui.fleet.fleet import Fleet
from gputui.fleet.stages import FleetSettings, Question
from gputui.model.hosts import Host
from gputui.model.plan import WorkerSpec
from gputui.model.snapshot import Severity
from gputui.protocol.agent import Claimed, ClaimGpus, Facts, FromAgent, ToAgent
from gputui.protocol.shared import FollowLogs, LogLines

BOUND_S = 10.0


class PlayedAgent(SimulatedAgent):
    """An agent whose workers may end, and come back by themselves, while no head is there."""

    def __init__(self, host: str, number: int, gpus: int) -> None:
        found = [SimulatedGpu(str(label), f"GPU-{host}-{label}") for label in range(gpus)]
        super().__init__(host, number, found)
        self.pid = 7
        self.taken: list[ToAgent] = []
        self.coming_back: list[SimulatedWorker] = []
        """Those that ended, and are started again right after the next `Facts`."""

    def take(self, message: ToAgent) -> None:
        self.taken.append(message)
        super().take(message)
        if isinstance(message, ClaimGpus):
            self.say(Claimed(message.request))

    def facts(self) -> Facts:
        return replace(super().facts(), agent_pid=self.pid)

    def say(self, message: FromAgent) -> None:
        super().say(message)
        if isinstance(message, Facts):
            for worker in self.coming_back:
                self.workers.setdefault(worker.name, worker)
                self.fork(worker)
            self.coming_back.clear()

    def start(self, spec: WorkerSpec) -> None:
        self.coming_back = [worker for worker in self.coming_back if worker.name != spec.name]
        super().start(spec)

    def end(self) -> None:
        self.coming_back.clear()
        super().end()

    def close_workers(self) -> None:
        """End the workers as a scheduler does that lost them; all come back by themselves."""
        for worker in self.workers.values():
            again = replace(worker, pid=worker.pid + 1, restarts=worker.restarts + 1, address="")
            self.coming_back.append(again)
        self.workers.clear()


class PlayedHosts(SimulatedHosts):
    """Hosts of so many GPUs each."""

    agents: dict[str, PlayedAgent]

    def __init__(self, gpus: int) -> None:
        super().__init__(lambda host, number: PlayedAgent(host, number, gpus))


@dataclass
class Head:
    """What a fleet needs of its head."""

    changed: asyncio.Event = field(default_factory=asyncio.Event)
    events: list[tuple[Severity, str, str, str]] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    logs: list[LogLines] = field(default_factory=list)
    scheduler_there: bool = True

    def fleet_changed(self) -> None:
        self.changed.set()

    def tell(self, severity: Severity, subject: str, kind: str, text: str) -> None:
        self.events.append((severity, subject, kind, text))
        self.changed.set()

    def logs_printed(self, lines: LogLines) -> None:
        self.logs.append(lines)

    async def ask(self, host: str, question: Question) -> str | None:
        return None

    def for_workers(self) -> dict[str, Callable[..., object]]:
        """Return what a `WorkerTable` is given of its head."""
        return {
            "retire": self.retire,
            "remove": self.remove,
            "tell": lambda *event: self.tell(*event),
            "changed": self.fleet_changed,
            "restarted": lambda: None,
        }

    def for_fleet(self) -> dict[str, Callable[..., object]]:
        """Return what a `Fleet` is given of its head."""
        return {
            **self.for_workers(),
            "printed": lambda lines: self.logs_printed(lines),
            "ask": self.ask,
            "need_scheduler": lambda: None,
        }

    @property
    def restarted(self) -> list[str]:
        return [subject for _, subject, kind, _ in self.events if kind == "restarted"]

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
        self.head, self.hosts = Head(), PlayedHosts(gpus)
        self.fleet = Fleet(
            FleetSettings("test", **{**usual, **settings}),
            Desired(),
            self.hosts,
            **self.head.for_fleet(),
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

    def agent(self, host: str = "h0") -> PlayedAgent:
        return self.hosts.agent(host)

    def followed(self, host: str = "h0") -> list[FollowLogs]:
        return [each for each in self.agent(host).taken if isinstance(each, FollowLogs)]
