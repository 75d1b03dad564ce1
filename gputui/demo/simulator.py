"""A simulated cluster: stepped by the caller's clock, deterministic for a seed.

`step(now)` lives through every whole second since the last step and returns the `Snapshot` that
a head would take then; `event_log` has the events, log lines and questions, and `requests.py`
carries out what frontends ask. One random generator, used in a fixed order, makes all of it.
"""

import os
import random
import re
from dataclasses import dataclass

from gputui.demo import chatter
from gputui.demo.devices import Worker
from gputui.demo.event_log import EventLog
from gputui.demo.launch import SimulatedHost
from gputui.demo.population import Population
from gputui.demo.troubles import Troubles
from gputui.demo.workload import Workload
from gputui.errors import UsageError
from gputui.snapshot import (
    ClusterState,
    HostState,
    SchedulerState,
    SchedulerStatus,
    Session,
    Snapshot,
)

MOST_HOSTS, MOST_GPUS = 4096, 64
"""Of a cluster, and of a host."""
CATCH_UP_S = 900
"""A clock that jumped by more is followed without living through all of it."""
READ_EVERY_S = 3
"""A busy GPU's reading changes every so many seconds, and whenever its task does."""
BUSY_AFTER_S = 2.0
"""A scheduler that has not answered for so long is shown as busy."""


@dataclass(frozen=True, slots=True)
class Shape:
    """How large a simulated cluster is.

    >>> Shape.parse("125x8")
    Shape(hosts=125, gpus_per_host=8)
    """

    hosts: int
    gpus_per_host: int

    @classmethod
    def parse(cls, text: str) -> "Shape":
        """Read `HOSTSxGPUS`; raises UsageError where it is something else."""
        numbers = re.fullmatch(r"([0-9]{1,9})x([0-9]{1,9})", text.lower())
        if numbers:
            shape = cls(int(numbers[1]), int(numbers[2]))
            if 1 <= shape.hosts <= MOST_HOSTS and 1 <= shape.gpus_per_host <= MOST_GPUS:
                return shape
        raise UsageError(
            f"--demo {text}: write HOSTSxGPUS, such as 125x8: "
            f"1 to {MOST_HOSTS:,} hosts of 1 to {MOST_GPUS} GPUs"
        )


class Simulator:
    """A cluster that is not there.

    With `troubles`, some hosts are refused, one asks about its key, and now and then a worker
    crashes, a host falls silent, a GPU is throttled; without, everything comes up and works.
    """

    def __init__(
        self, shape: Shape, *, seed: int = 0, started_at: float = 0.0, troubles: bool = True
    ) -> None:
        self.rng = random.Random(seed)
        self.started_at = self.now = started_at
        self.event_log = EventLog()
        self.population = Population(self.rng, self.event_log, shape.gpus_per_host)
        self.workload = Workload(self.rng, self.event_log, failures=troubles)
        self.wanted: int | None = None
        self.adaptive: tuple[int, int] | None = None
        self.state = ClusterState.STARTING
        self.scheduler_busy_since: float | None = None
        self._sequence = 0
        self._ticks = 0
        width = max(2, len(str(shape.hosts)))
        names = [f"node-{number:0{width}d}" for number in range(1, shape.hosts + 1)]
        self.population.add_hosts(names, started_at)
        self._troubles = Troubles(self) if troubles else None
        if troubles:
            self.population.spread_launch_troubles()

    def step(self, now: float) -> Snapshot:
        """Live on until `now` and return the cluster as it is then."""
        due = int(now - self.started_at) - self._ticks
        self._ticks += max(0, due - CATCH_UP_S)
        for _ in range(min(due, CATCH_UP_S)):
            self._ticks += 1
            self._live(self.started_at + self._ticks)
        self.now = max(now, self.now)
        self.population.advance_launches(self.now)
        return self._snapshot()

    @property
    def unsettled(self) -> bool:
        """Whether hosts are coming up, so that looking more often than once a second pays."""
        return any(host.coming_up for host in self.population.hosts.values())

    def _live(self, at: float) -> None:
        """Live through the second that ends at `at`."""
        self.now = at
        restarts = self.population.restarts
        self.population.advance_launches(at)
        if self._troubles is not None:
            self._troubles.happen(self._ticks, at)
        self.population.pass_states(at)
        for run in self.workload.runs:
            run.restarts += self.population.restarts - restarts
        self._adapt(at)
        self._work(at)
        chatter.chat(self.population.workers.values(), self.rng, self.event_log, at)
        for host in self.population.hosts.values():
            if host.state is HostState.READY:
                host.read(self.rng, at)

    def _adapt(self, at: float) -> None:
        """Follow the work between the bounds, a step every three seconds."""
        if self.adaptive is None or self._ticks % 3:
            return
        low, high = self.adaptive
        wanted = high if self.workload.queued else low
        now = self.population.workers_wanted
        self.scale(now + max(-8, min(8, wanted - now)), at)

    def scale(self, number: int, at: float, host: str | None = None) -> None:
        """Start or retire workers until there are `number` more or fewer than now, on a host."""
        cheapest = self.population.cheapest(host)
        for name in cheapest[: max(0, len(cheapest) - number)]:
            self.population.retire(name, at)
        for name in self.population.free_slots(host)[: max(0, number - len(cheapest))]:
            self.population.start(name, at)

    def _work(self, at: float) -> None:
        """Let every worker go on with its tasks until `at`, and read what changed."""
        hosts, workload, rng = self.population.hosts, self.workload, self.rng
        for turn, worker in enumerate(self.population.workers.values(), self._ticks):
            host = hosts[worker.host]
            if host.state is not HostState.READY:
                continue
            run = worker.run
            ended = (run or worker.state.up) and workload.go_on(worker, at)
            if run is not worker.run or (turn % READ_EVERY_S == 0 and not _at_rest(worker)):
                worker.jitter(rng)
                worker.gpu.read(rng, worker.load_percent, worker)
                host.moved = True
                worker.read()
            elif ended:
                worker.read()
        for host in hosts.values():
            if len(host.workers) < len(host.gpus) and host.state is HostState.READY:
                self._read_unused(host)
        if self.workload.turn(at, self.population.workers_up):
            self._free_results()

    def _read_unused(self, host: SimulatedHost) -> None:
        """Read the GPUs of a host that have no worker."""
        used = {worker.gpu.uuid for worker in host.workers}
        for gpu in host.gpus:
            if gpu.uuid not in used and not gpu.settled:
                gpu.read(self.rng, 0.0, None)
                host.moved = True

    def _free_results(self) -> None:
        """Let workers forget what they held of a run that ended."""
        for worker in self.population.workers.values():
            worker.in_memory = worker.managed_bytes = worker.spilled_bytes = 0
            worker.gpu.settled, worker.gpu.pool_bytes = False, 0

    def _snapshot(self) -> Snapshot:
        self._sequence += 1
        population, workload = self.population, self.workload
        if self.state is ClusterState.STARTING and population.workers_up:
            self.state = ClusterState.RUNNING
        return Snapshot(
            sequence=self._sequence,
            taken_at=self.now,
            name="demo",
            state=self.state,
            started_at=self.started_at,
            scheduler=self._scheduler(),
            hosts=tuple([host.status() for host in population.hosts.values()]),
            workers=tuple([worker.status for worker in population.workers.values()]),
            groups=workload.groups(self.now),
            runs=workload.statuses(),
            spans=workload.take_spans(),
            wanted_workers=self.wanted,
            adaptive=self.adaptive,
            sessions=(Session("screen", os.getpid()),),
            simulated=True,
        )

    def _scheduler(self) -> SchedulerStatus:
        since = self.scheduler_busy_since
        busy_s = 0.0 if since is None else self.now - since
        busy = busy_s > BUSY_AFTER_S
        workers = len(self.population.workers)
        return SchedulerStatus(
            state=SchedulerState.BUSY if busy else SchedulerState.RUNNING,
            address="tls://10.0.0.1:40123",
            pid=40_990,
            busy_s=busy_s if busy else 0.0,
            tasks=self.workload.tasks,
            queued=self.workload.queued,
            clients=1 + len(self.workload.runs),
            cpu_percent=float(9 + workers // 24) if self.workload.runs else 2.0,
            rss_bytes=(190 + workers // 8) * 2**20,
        )


def _at_rest(worker: Worker) -> bool:
    """Whether nothing that is read of a worker and its GPU changes any more."""
    return worker.run is None and worker.gpu.settled
