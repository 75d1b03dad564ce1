"""Simulated GPUs and workers: curves that follow what they work on, as NVML would read them.

A GPU's temperature and clock follow its utilisation slowly, its memory is a pool that grows and
is kept. Their frozen readings are made anew only when something changed, because a thousand
GPUs are stepped every second.
"""

import random
from dataclasses import dataclass, field

from gputui.demo.work import SimulatedRun
from gputui.readings import DeviceProcess, DeviceReading, Owner
from gputui.snapshot import WorkerState, WorkerStatus

CONTEXT_BYTES = 530 * 2**20
"""What a CUDA context and its kernels take on a device."""
AMBIENT_C = 31.0
USER = "you"


@dataclass(frozen=True, slots=True)
class Model:
    """A kind of GPU."""

    name: str
    memory_bytes: int
    idle_w: float
    limit_w: float
    clock_mhz: float


H200 = Model("NVIDIA H200", 143_771 * 2**20, 76.0, 700.0, 1980.0)
A100 = Model("NVIDIA A100-SXM4-80GB", 81_920 * 2**20, 58.0, 400.0, 1410.0)


@dataclass(slots=True)
class Gpu:
    """One simulated GPU."""

    label: str
    uuid: str
    model: Model
    usable: bool = True
    foreign: DeviceProcess | None = None
    hot: bool = False
    ecc_errors: int = 0
    lost: bool = False
    temperature_c: float = AMBIENT_C
    pool_bytes: int = 0
    settled: bool = False
    """Whether it does nothing and has cooled down, so that its reading stays as it is."""
    reading: DeviceReading = field(init=False)

    def __post_init__(self) -> None:
        self.reading = DeviceReading(
            self.uuid, self.label, self.model.name, self.model.memory_bytes, 0
        )

    def read(self, rng: random.Random, load_percent: float, worker: "Worker | None") -> None:
        """Make its next reading while a worker loads it so much."""
        if self.lost:
            return
        utilization = self._utilization(rng, load_percent)
        goal = AMBIENT_C + 0.38 * utilization + (16 if self.hot else 0)
        self.temperature_c += (goal - self.temperature_c) * 0.18
        self.settled = not load_percent and abs(goal - self.temperature_c) < 0.5
        processes = self._processes(worker)
        self.reading = DeviceReading(
            self.uuid,
            self.label,
            self.model.name,
            self.model.memory_bytes,
            sum(process.memory_bytes or 0 for process in processes),
            float(utilization),
            float(round(self.temperature_c)),
            self._power(rng, utilization),
            self.model.limit_w,
            self._clock(utilization),
            ("thermal",) if self.hot and utilization > 50 else (),
            self.ecc_errors,
            processes,
            False,
            self.usable,
        )

    def _utilization(self, rng: random.Random, load_percent: float) -> int:
        load = load_percent + (rng.uniform(38, 55) if self.foreign else 0)
        return min(100, max(0, round(load + rng.uniform(-5, 3)))) if load else 0

    def _power(self, rng: random.Random, utilization: int) -> float:
        idle = self.model.idle_w
        drawn = idle + (self.model.limit_w - idle) * 0.88 * utilization / 100
        return float(round(drawn + (rng.uniform(-12, 12) if utilization else 0)))

    def _clock(self, utilization: int) -> float:
        if not utilization:
            return 345.0
        return round(self.model.clock_mhz * (0.64 if self.hot else 1.0))

    def _processes(self, worker: "Worker | None") -> tuple[DeviceProcess, ...]:
        ours: tuple[DeviceProcess, ...] = ()
        if worker is not None and worker.state.up:
            needed = worker.managed_bytes + int(worker.device_share * self.model.memory_bytes)
            self.pool_bytes = min(max(self.pool_bytes, needed), self.model.memory_bytes * 9 // 10)
            memory = CONTEXT_BYTES + self.pool_bytes
            ours = (
                DeviceProcess(worker.pid, Owner.OURS, USER, f"gputui worker {worker.name}", memory),
            )
        else:
            self.pool_bytes = 0
        return (*ours, self.foreign) if self.foreign else ours

    def fall_off_the_bus(self) -> None:
        """Be lost: the last reading stays."""
        self.lost = True
        last = self.reading
        self.reading = DeviceReading(
            self.uuid,
            self.label,
            last.name,
            last.memory_total_bytes,
            last.memory_used_bytes,
            last.utilization_percent,
            last.temperature_c,
            last.power_w,
            last.power_limit_w,
            last.sm_clock_mhz,
            processes=last.processes,
            lost=True,
            usable=self.usable,
        )


@dataclass(slots=True)
class Worker:
    """One simulated worker and the task it has in hand."""

    name: str
    host: str
    gpu: Gpu
    seen_uuid: str
    pid: int
    address: str
    memory_limit_bytes: int
    state: WorkerState = WorkerState.WANTED
    due: float = 0.0
    """When a passing state (starting, retiring, crashed) is over."""
    reason: str = ""
    restarts: int = 0
    run: SimulatedRun | None = None
    stage: int = 0
    task_started_at: float = 0.0
    task_ends_at: float = 0.0
    ready: int = 0
    in_memory: int = 0
    managed_bytes: int = 0
    spilled_bytes: int = 0
    cpu_percent: float = 2.0
    rss_bytes: int = 410 * 2**20
    status: WorkerStatus = field(init=False)

    def __post_init__(self) -> None:
        self.read()

    @property
    def load_percent(self) -> float:
        """What its task asks of the GPU."""
        return self.run.counts[self.stage].stage.utilization_percent if self.run else 0.0

    @property
    def device_share(self) -> float:
        """Of the GPU's memory, what its task takes."""
        return self.run.counts[self.stage].stage.device_share if self.run else 0.0

    def drop_task(self) -> None:
        """Give back the task in hand; another worker will run it."""
        if self.run is not None and not self.run.state.ended:
            self.run.put_back(self.stage)
        self.run = None

    def lose_all(self) -> None:
        """Hold nothing, as after a crash."""
        self.drop_task()
        self.ready = self.in_memory = self.managed_bytes = self.spilled_bytes = 0

    def keep_result(self, result_bytes: int) -> None:
        """Hold a result more, or make room by letting the results before it go."""
        self.in_memory += 1
        self.managed_bytes += result_bytes
        room = int(self.gpu.model.memory_bytes * 0.7)
        if self.managed_bytes > room:
            self.spilled_bytes += self.managed_bytes - room
            self.managed_bytes = room

    def use_results(self, number: int) -> None:
        """Let results go that a later stage has used."""
        if self.in_memory:
            kept = max(0, self.in_memory - number)
            self.managed_bytes = self.managed_bytes * kept // self.in_memory
            self.spilled_bytes = self.spilled_bytes * kept // self.in_memory
            self.in_memory = kept

    def jitter(self, rng: random.Random) -> None:
        """Let the process's readings wander a little."""
        busy = self.run is not None
        self.cpu_percent = float(round(rng.uniform(88, 104) if busy else rng.uniform(1, 4)))
        goal = (540 if busy else 430) * 2**20 + self.spilled_bytes // 8
        self.rss_bytes += (goal - self.rss_bytes) // 4

    def read(self) -> None:
        """Make its next status."""
        up = self.state.up or self.state is WorkerState.RETIRING
        running = self.state in (WorkerState.BUSY, WorkerState.RETIRING) and self.run is not None
        self.status = WorkerStatus(
            self.name,
            self.host,
            self.state,
            self.gpu.uuid,
            self.seen_uuid if up else None,
            self.pid if up or self.state is WorkerState.STARTING else None,
            self.address if up else None,
            self.reason,
            self.cpu_percent if up else None,
            self.rss_bytes if up else None,
            self.memory_limit_bytes,
            38 if up else None,
            int(running) if up else None,
            self.ready if up else None,
            self.in_memory if up else None,
            self.managed_bytes if up else None,
            self.managed_bytes if up else None,
            self.spilled_bytes if up else None,
            self.restarts,
            1,
            self.run.counts[self.stage].stage.prefix if self.run and running else None,
        )
