"""Simulated GPUs: curves that follow what a worker does on them, as NVML would read them.

A GPU's temperature follows its utilisation slowly.
"""

import random
from dataclasses import dataclass, replace

from gputui.model.frozen import frozen
from gputui.model.readings import Claim, DeviceProcess, DeviceReading, Interconnect

CONTEXT_BYTES = 530 * 2**20
"""Size of a CUDA context with its kernels on a device."""
AMBIENT_C = 31.0
USER = "you"
LINK_SHARE = 0.04
"""Of what its NVLinks carry both ways that a busy GPU sends and receives."""


@frozen
class Model:
    """A kind of GPU."""

    name: str
    memory_bytes: int
    idle_w: float
    limit_w: float
    clock_mhz: float
    links: Interconnect


H200_LINKS = Interconnect(18, 478e9, (), pcie_generation=5, pcie_width=16)
H200 = Model("NVIDIA H200", 143_771 * 2**20, 76.0, 700.0, 1980.0, H200_LINKS)
A100_LINKS = Interconnect(12, 300e9, (), pcie_generation=4, pcie_width=16)
A100 = Model("NVIDIA A100-SXM4-80GB", 81_920 * 2**20, 58.0, 400.0, 1410.0, A100_LINKS)


@dataclass(slots=True)
class SimulatedGpu:
    """One simulated GPU."""

    label: str
    uuid: str
    model: Model = H200
    links: Interconnect = H200_LINKS
    foreign: DeviceProcess | None = None
    claim: Claim | None = None
    waiting: tuple[str, ...] = ()
    idle_since: float | None = None
    hot: bool = False
    ecc_errors: int = 0
    lost: bool = False
    temperature_c: float = AMBIENT_C
    _last: DeviceReading | None = None

    def read(
        self, rng: random.Random, percent: float = 0.0, worker: DeviceProcess | None = None
    ) -> DeviceReading:
        """Return its next reading while a worker uses it so much; the last one once it is lost."""
        if self.lost and self._last is not None:
            return replace(self._last, lost=True)
        model = self.model
        busy = percent + (rng.uniform(38, 55) if self.foreign else 0)
        utilization = min(100, max(0, round(busy + rng.uniform(-5, 3)))) if busy else 0
        goal = AMBIENT_C + 0.38 * utilization + (16 if self.hot else 0)
        self.temperature_c += (goal - self.temperature_c) * 0.18
        drawn = model.idle_w + (model.limit_w - model.idle_w) * 0.88 * utilization / 100
        clock = model.clock_mhz * (0.64 if self.hot else 1.0) if utilization else 345
        most = 2 * (self.links.nvlink_bytes_per_s or 0) if self.links.nvlink_peers else 0
        processes = tuple(filter(None, (worker, self.foreign)))
        self._last = DeviceReading(
            uuid=self.uuid,
            label=self.label,
            name=model.name,
            memory_total_bytes=model.memory_bytes,
            memory_used_bytes=sum(process.memory_bytes or 0 for process in processes),
            utilization_percent=utilization,
            temperature_c=round(self.temperature_c),
            power_w=float(round(drawn + (rng.uniform(-12, 12) if utilization else 0))),
            power_limit_w=model.limit_w,
            sm_clock_mhz=round(clock),
            throttle_reasons=("thermal",) if self.hot and utilization > 50 else (),
            ecc_errors=self.ecc_errors,
            processes=processes,
            interconnect=self.links,
            nvlink_bytes_per_s=float(round(most * LINK_SHARE * utilization / 100)),
            claim=self.claim,
            waiting=self.waiting,
            idle_since=None if utilization else self.idle_since,
        )
        return self._last
