"""Simulated GPUs: curves that follow what a worker does on them, as NVML would read them.

A GPU's temperature and clock follow its utilisation slowly, its memory is a pool that grows and
is kept.
"""

import random
from dataclasses import dataclass, replace
from functools import cached_property

from gputui.model.readings import DeviceProcess, DeviceReading, Interconnect, Owner

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
    links: Interconnect
    """To no other GPU yet: those of its host have labels."""


H200_LINKS = Interconnect(18, 4, 478e9, (), pcie_generation=5, pcie_width=16)
H200 = Model("NVIDIA H200", 143_771 * 2**20, 76.0, 700.0, 1980.0, H200_LINKS)
A100_LINKS = Interconnect(12, 3, 300e9, (), pcie_generation=4, pcie_width=16)
A100 = Model("NVIDIA A100-SXM4-80GB", 81_920 * 2**20, 58.0, 400.0, 1410.0, A100_LINKS)
LINK_SHARE = 0.04
"""Of what its NVLinks carry both ways that a busy GPU sends and receives."""


@dataclass(slots=True)
class Load:
    """A worker's load on a GPU."""

    pid: int
    worker: str
    utilization_percent: float
    memory_bytes: int


@dataclass
class SimulatedGpu:
    """One simulated GPU."""

    label: str
    uuid: str
    model: Model = H200
    peers: tuple[str, ...] = ()
    """Labels of the other GPUs of its host."""
    foreign: DeviceProcess | None = None
    hot: bool = False
    ecc_errors: int = 0
    lost: bool = False
    temperature_c: float = AMBIENT_C
    pool_bytes: int = 0
    _last: DeviceReading | None = None

    def read(self, rng: random.Random, load: Load | None = None) -> DeviceReading:
        """Return its next reading under a load; the last one once it is lost."""
        if self.lost and self._last is not None:
            return replace(self._last, lost=True)
        utilization = self._utilization(rng, load.utilization_percent if load else 0.0)
        goal = AMBIENT_C + 0.38 * utilization + (16 if self.hot else 0)
        self.temperature_c += (goal - self.temperature_c) * 0.18
        processes = self._processes(load)
        self._last = DeviceReading(
            uuid=self.uuid,
            label=self.label,
            name=self.model.name,
            memory_total_bytes=self.model.memory_bytes,
            memory_used_bytes=sum(process.memory_bytes or 0 for process in processes),
            utilization_percent=utilization,
            temperature_c=round(self.temperature_c),
            power_w=self._power(rng, utilization),
            power_limit_w=self.model.limit_w,
            sm_clock_mhz=self._clock(utilization),
            throttle_reasons=("thermal",) if self.hot and utilization > 50 else (),
            ecc_errors=self.ecc_errors,
            processes=processes,
            interconnect=self._links,
            nvlink_bytes_per_s=self._traffic(utilization) if self.peers else 0.0,
        )
        return self._last

    @cached_property
    def _links(self) -> Interconnect:
        return replace(self.model.links, nvlink_peers=self.peers)

    def _traffic(self, utilization: int) -> float:
        most = 2 * (self.model.links.nvlink_bytes_per_s or 0.0)
        return float(round(most * LINK_SHARE * utilization / 100))

    def _utilization(self, rng: random.Random, load_percent: float) -> int:
        load = load_percent + (rng.uniform(38, 55) if self.foreign else 0)
        return min(100, max(0, round(load + rng.uniform(-5, 3)))) if load else 0

    def _power(self, rng: random.Random, utilization: int) -> float:
        idle = self.model.idle_w
        drawn = idle + (self.model.limit_w - idle) * 0.88 * utilization / 100
        return float(round(drawn + (rng.uniform(-12, 12) if utilization else 0)))

    def _clock(self, utilization: int) -> int:
        if not utilization:
            return 345
        return round(self.model.clock_mhz * (0.64 if self.hot else 1.0))

    def _processes(self, load: Load | None) -> tuple[DeviceProcess, ...]:
        ours: tuple[DeviceProcess, ...] = ()
        if load is None:
            self.pool_bytes = 0
        else:
            most = self.model.memory_bytes * 9 // 10
            self.pool_bytes = min(max(self.pool_bytes, load.memory_bytes), most)
            command, used = f"gputui worker {load.worker}", CONTEXT_BYTES + self.pool_bytes
            ours = (DeviceProcess(load.pid, Owner.OURS, USER, command, used),)
        return (*ours, self.foreign) if self.foreign else ours
