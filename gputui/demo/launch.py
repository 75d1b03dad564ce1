"""How a simulated host comes up: how long each stage takes it, and what goes wrong where.

The reasons and hints are worded as the fleet words them, so that the launch board and its
pictures show what people will see.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field

from gputui.demo.devices import Gpu, Worker
from gputui.readings import DeviceReading, HostReading
from gputui.snapshot import HostState, HostStatus

STAGES = (
    HostState.RESOLVING,
    HostState.CONNECTING,
    HostState.AUTHENTICATING,
    HostState.PROBING,
    HostState.REACHING,
    HostState.READY,
)
STAGE_S: Mapping[HostState, tuple[float, float]] = {
    HostState.RESOLVING: (0.1, 0.6),
    HostState.CONNECTING: (0.2, 1.2),
    HostState.AUTHENTICATING: (0.3, 1.4),
    HostState.PROBING: (0.6, 2.8),
    HostState.REACHING: (0.1, 0.8),
}
"""The shortest and the longest time that a stage takes."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a host does not come up."""

    stage: HostState
    reason: str
    hint: str
    stderr: tuple[str, ...] = ()
    mends: bool = False
    """Whether it comes up when it is tried again."""


REFUSALS = (
    Refusal(
        HostState.AUTHENTICATING,
        "the host refused every key",
        "ssh-copy-id {host}",
        ("{host}: Permission denied (publickey,password).",),
    ),
    Refusal(
        HostState.CONNECTING,
        "connection refused on port 22",
        "start sshd there, or write the port: {host}:2222",
        ("connect to host {host} port 22: Connection refused",),
        mends=True,
    ),
    Refusal(
        HostState.PROBING,
        "dask 2024.5.1 there, 2026.8.0 here",
        "gputui bootstrap {host}",
        (
            "/opt/conda/bin/python: Python 3.11.9",
            "dask 2024.5.1  distributed 2024.5.1  numpy 1.26.4",
        ),
    ),
    Refusal(
        HostState.REACHING,
        "cannot reach the scheduler at 10.0.0.1:40123 within 10 s",
        "open the port, or set gputui.scheduler.host to an address that {host} reaches",
        ("[Errno 110] Connection timed out",),
        mends=True,
    ),
)


@dataclass(frozen=True, slots=True)
class HostKeyQuestion:
    """A host whose key is not known."""

    number: int
    fingerprint: str

    def text(self, host: str) -> str:
        """Return the question as a person is asked it."""
        return (
            f"The key of {host} is not known.\n"
            f"ED25519 SHA256:{self.fingerprint}\n"
            "Is this the host, and shall its key be added to known_hosts?"
        )


@dataclass(slots=True)
class SimulatedHost:
    """One simulated host, from its first stage on."""

    name: str
    address: str
    gpus: list[Gpu]
    cpus: int
    memory_bytes: int
    stage_s: dict[HostState, float]
    state: HostState
    state_since: float
    refusal: Refusal | None = None
    question: HostKeyQuestion | None = None
    asked: bool = False
    reason: str = ""
    workers: list[Worker] = field(default_factory=list)
    read_at: float | None = None
    reading: HostReading = field(default_factory=HostReading)
    readings: tuple[DeviceReading, ...] = ()
    moved: bool = True
    """Whether a GPU's reading changed since `readings` was made."""

    @property
    def coming_up(self) -> bool:
        """Whether it is on its way through the stages of its start."""
        return self.state in STAGE_S

    def advance(self, at: float) -> HostState | None:
        """Go on to the next stage if this one is over by `at`; return the state it came to."""
        over = self.state_since + self.stage_s[self.state]
        if over > at or self.asked:
            return None
        if self.refusal is not None and self.refusal.stage is self.state:
            self.enter(HostState.REFUSED, over, self.refusal.reason)
        elif self.question is not None and self.state is HostState.AUTHENTICATING:
            self.asked = True
            self.reason = "waiting for an answer about its key"
            return None
        else:
            self.enter(STAGES[STAGES.index(self.state) + 1], over)
        return self.state

    def enter(self, state: HostState, at: float, reason: str = "") -> None:
        """Be in this state from now on."""
        self.state, self.state_since, self.reason = state, at, reason

    def answer(self, yes: bool, at: float) -> None:
        """Take the answer about its key: go on, or be refused."""
        question, self.question, self.asked = self.question, None, False
        if yes or question is None:
            self.enter(HostState.AUTHENTICATING, at)
            return
        self.refusal = Refusal(
            HostState.AUTHENTICATING,
            f"unknown host key ED25519 SHA256:{question.fingerprint}",
            f"ssh-keyscan {self.name} >> ~/.ssh/known_hosts, after comparing the fingerprint",
        )
        self.enter(HostState.REFUSED, at, self.refusal.reason)

    def retry(self, at: float) -> None:
        """Start anew from the first stage."""
        if self.refusal is not None and self.refusal.mends:
            self.refusal = None
        self.enter(HostState.RESOLVING, at)

    def read(self, rng: random.Random, at: float) -> None:
        """Make the reading that its agent would send now."""
        self.read_at = at
        if self.moved:
            self.readings = tuple([gpu.reading for gpu in self.gpus])
            self.moved = False
            self.reading = self._host_reading(rng)

    def _host_reading(self, rng: random.Random) -> HostReading:
        busy = sum(worker.run is not None for worker in self.workers)
        used = 6 * 2**30 + sum(worker.rss_bytes for worker in self.workers)
        return HostReading(
            cpu_percent=float(round(min(100.0, 100 * (busy + rng.random()) / self.cpus + 1))),
            cpus=self.cpus,
            memory_used_bytes=used // 2**28 * 2**28,
            memory_total_bytes=self.memory_bytes,
            load_1m=round(busy * 1.1 + rng.random() * 0.5, 1),
            network_receive_bytes_per_s=float(round(busy * rng.uniform(4e6, 9e6) + 2e4)),
            network_send_bytes_per_s=float(round(busy * rng.uniform(3e6, 8e6) + 3e4)),
            disk_free_bytes=1_800 * 2**30,
        )

    def status(self) -> HostStatus:
        """Return it as the head tells it to frontends."""
        refused = self.refusal if self.state is HostState.REFUSED else None
        return HostStatus(
            self.name,
            self.state,
            self.state_since,
            self.reason,
            refused.hint.format(host=self.name) if refused else "",
            refused.stage.value if refused else "",
            tuple(line.format(host=self.name) for line in refused.stderr) if refused else (),
            self.address,
            self.reading,
            self.read_at,
            self.readings,
        )


def new_host(
    name: str, number: int, gpus: list[Gpu], rng: random.Random, at: float
) -> SimulatedHost:
    """Return a host that begins to come up at `at`; `number` makes its address."""
    return SimulatedHost(
        name=name,
        address=f"10.0.{number // 250}.{number % 250 + 2}",
        gpus=gpus,
        cpus=128,
        memory_bytes=2_048 * 2**30,
        stage_s={stage: rng.uniform(*bounds) for stage, bounds in STAGE_S.items()},
        state=HostState.RESOLVING,
        state_since=at,
    )
