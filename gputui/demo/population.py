"""The hosts and workers of a simulated cluster: coming up, started, retired, crashed, removed.

The one owner of who is there; the simulator steps it, requests and troubles change it.
"""

import random
from types import MappingProxyType

from gputui.demo import chatter
from gputui.demo.devices import A100, H200, Gpu, Worker
from gputui.demo.event_log import EventLog
from gputui.demo.launch import REFUSALS, HostKeyQuestion, SimulatedHost, new_host
from gputui.protocol.frontend import Asked
from gputui.snapshot import HostState, Severity, WorkerState

NEXT = MappingProxyType(
    {
        WorkerState.STARTING: WorkerState.IDLE,
        WorkerState.CRASHED: WorkerState.STARTING,
        WorkerState.RETIRING: None,
    }
)
"""The states of a worker that pass by themselves, and what follows; None is its end."""


class Population:
    """Hosts by name and workers by name."""

    def __init__(self, rng: random.Random, event_log: EventLog, gpus_per_host: int) -> None:
        self.hosts: dict[str, SimulatedHost] = {}
        self.workers: dict[str, Worker] = {}
        self.restarts = 0
        self._unwanted: set[str] = set()
        """Names of workers that could be, and that nobody wants."""
        self._passing: set[str] = set()
        """Names of workers in a state that passes by itself."""
        self._rng = rng
        self._event_log = event_log
        self._gpus_per_host = gpus_per_host
        self._pids = 41_000
        self._hosts_seen = 0

    @property
    def workers_up(self) -> int:
        """Workers that take tasks."""
        return sum(worker.state.up for worker in self.workers.values())

    @property
    def workers_wanted(self) -> int:
        """Workers that are, or are on their way."""
        return sum(w.state is not WorkerState.RETIRING for w in self.workers.values())

    def add_hosts(self, names: list[str], at: float) -> None:
        """Let hosts of these names begin to come up, spread over the first seconds."""
        for name in names:
            model = A100 if self._hosts_seen % 12 == 11 else H200
            gpus = [Gpu(str(label), self._uuid(), model) for label in range(self._gpus_per_host)]
            begin = at + self._rng.random() * min(4.0, len(names) / 8)
            self.hosts[name] = new_host(name, self._hosts_seen, gpus, self._rng, begin)
            self._hosts_seen += 1

    def _uuid(self) -> str:
        bits = f"{self._rng.getrandbits(128):032x}"
        return f"GPU-{bits[:8]}-{bits[8:12]}-{bits[12:16]}-{bits[16:20]}-{bits[20:]}"

    def spread_launch_troubles(self) -> None:
        """Choose the hosts that will be refused, and the one whose key is not known."""
        names = list(self.hosts)
        number = max(2, len(names) // 40) if len(names) > 5 else 0
        refused = self._rng.sample(names[1:], number)
        for index, name in enumerate(refused):
            self.hosts[name].refusal = REFUSALS[index % len(REFUSALS)]
        if len(names) > 2:
            fingerprint = "".join(self._rng.choices("ABCDEFabcdefghijkmnpq23456789+/", k=43))
            asks = next(name for name in names[1:] if name not in refused)
            self.hosts[asks].question = HostKeyQuestion(1, fingerprint)

    def advance_launches(self, at: float) -> None:
        """Let the hosts that are coming up go on until `at`."""
        for host in self.hosts.values():
            if not host.coming_up:
                continue
            while host.coming_up and (state := host.advance(at)):
                if state is HostState.READY:
                    self._be_up(host)
                elif state is HostState.REFUSED and host.refusal:
                    text = f"refused while {host.refusal.stage}: {host.reason}"
                    self._event_log.tell(
                        host.state_since, Severity.ERROR, host.name, "refused", text
                    )
            question = host.question if host.asked else None
            if question and question.number not in self._event_log.questions:
                text = question.text(host.name)
                self._event_log.ask(Asked(question.number, host.name, "host-key", text, False))

    def _be_up(self, host: SimulatedHost) -> None:
        at = host.state_since
        text = f"ready: {len(host.gpus)} GPUs ({host.gpus[0].model.name})"
        self._event_log.tell(at, Severity.INFO, host.name, "connected", text)
        host.read(self._rng, at)
        for gpu in host.gpus:
            name = worker_name(host.name, gpu.label)
            if gpu.usable and name not in self._unwanted and name not in self.workers:
                self.start(name, at)

    def know_every_host(self) -> None:
        """Have no host ask about its key."""
        for host in self.hosts.values():
            host.question = None

    def pass_states(self, at: float) -> None:
        """Let workers that start, retire or wait after a crash come out of it."""
        for name in sorted(self._passing):
            worker = self.workers[name]
            while worker.due <= at and worker.state in NEXT and name in self.workers:
                self._pass_state(worker)
            if worker.state not in NEXT:
                self._passing.discard(name)

    def _pass_state(self, worker: Worker) -> None:
        at, state = worker.due, NEXT[worker.state]
        if state is None:
            self._remove(worker)
            text = "retired; what it held was moved first"
            self._event_log.tell(at, Severity.INFO, worker.name, "retired", text)
            return
        worker.state, worker.reason = state, ""
        if worker.state is WorkerState.STARTING:
            worker.restarts += 1
            self.restarts += 1
            worker.pid = self._next_pid()
            worker.due = at + self._rng.uniform(0.8, 2.4)
        elif worker.state is WorkerState.IDLE:
            self._event_log.log(at, worker.name, chatter.greeting(worker))
        worker.read()

    def _remove(self, worker: Worker) -> None:
        worker.lose_all()
        del self.workers[worker.name]
        self._passing.discard(worker.name)
        host = self.hosts[worker.host]
        host.workers.remove(worker)
        worker.gpu.read(self._rng, 0.0, None)
        host.moved = True

    def _next_pid(self) -> int:
        self._pids += self._rng.randint(1, 9)
        return self._pids

    def start(self, name: str, at: float) -> None:
        """Start the worker of this name on its GPU."""
        host_name, _, label = name.rpartition(":gpu")
        host = self.hosts[host_name]
        gpu = next(gpu for gpu in host.gpus if gpu.label == label)
        worker = Worker(
            name=name,
            host=host.name,
            gpu=gpu,
            seen_uuid=gpu.uuid,
            pid=self._next_pid(),
            address=f"tls://{host.address}:{36_000 + int(label)}",
            memory_limit_bytes=int(host.memory_bytes * 0.95) // len(host.gpus),
            state=WorkerState.STARTING,
            due=at + self._rng.uniform(0.8, 2.6),
        )
        self._unwanted.discard(name)
        self.workers[name] = worker
        host.workers.append(worker)
        self._passing.add(name)

    def _be_passing(self, worker: Worker, state: WorkerState, at: float, seconds: float) -> None:
        worker.state, worker.due = state, at + seconds
        self._passing.add(worker.name)
        worker.read()

    def retire(self, name: str, at: float) -> None:
        """Let a worker give up what it holds, and go."""
        worker = self.workers[name]
        self._unwanted.add(name)
        if worker.state.up:
            worker.drop_task()
            self._be_passing(worker, WorkerState.RETIRING, at, self._rng.uniform(1.2, 3.0))
        elif worker.state is not WorkerState.RETIRING:
            self._remove(worker)

    def crash(self, worker: Worker, at: float, reason: str) -> None:
        """End a worker badly; it is started again after two seconds."""
        worker.lose_all()
        worker.reason = reason
        worker.gpu.read(self._rng, 0.0, None)
        self.hosts[worker.host].moved = True
        self._be_passing(worker, WorkerState.CRASHED, at, 2.0)

    def cheapest(self, host: str | None = None) -> list[str]:
        """Return the names of workers, first the one that is cheapest to give up."""
        ranked = sorted(
            (w.managed_bytes, w.run is not None, w.name)
            for w in self.workers.values()
            if w.state is not WorkerState.RETIRING and host in (None, w.host)
        )
        return [name for _, _, name in ranked]

    def free_slots(self, host: str | None = None) -> list[str]:
        """Return the names of workers that could be started, in the hosts' order."""
        return [
            name
            for one in self.hosts.values()
            if one.state is HostState.READY and host in (None, one.name)
            for gpu in one.gpus
            if gpu.usable and not gpu.lost
            if (name := worker_name(one.name, gpu.label)) not in self.workers
        ]

    def remove_host(self, name: str, at: float) -> None:
        """Forget a host and its workers."""
        for worker in list(self.hosts[name].workers):
            self._remove(worker)
        del self.hosts[name]
        self._event_log.tell(at, Severity.INFO, name, "removed", "removed from the cluster")


def worker_name(host: str, label: str) -> str:
    """Return the name of the worker on this GPU."""
    return f"{host}:gpu{label}"
