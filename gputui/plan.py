"""Hosts × devices × the number wanted → worker specs; wanted against running → what to change.

Called by the fleet whenever facts arrive or somebody scales; pure, so that a preview on the
screen and the change itself come from the same function.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PlannedDevice:
    """What planning needs to know of a GPU or MIG instance."""

    uuid: str
    label: str
    """`0` for a GPU, `0.2` for a MIG instance: the name of the worker comes from it."""
    usable: bool = True


@dataclass(frozen=True, slots=True)
class HostCapacity:
    """What a host has, as its agent found it."""

    devices: tuple[PlannedDevice, ...]
    cpus: int
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class WorkerSpec:
    """One worker to run: where, on which device, and within what limits."""

    name: str
    host: str
    device_uuid: str | None
    device_label: str | None
    nthreads: int
    memory_limit_bytes: int
    env: tuple[tuple[str, str], ...] = ()

    @property
    def resources(self) -> dict[str, float]:
        """Dask's worker resources: one `GPU` where there is one."""
        return {"GPU": 1.0} if self.device_uuid else {}


@dataclass(frozen=True, slots=True)
class Changes:
    """What turns the running workers into the wanted ones."""

    starts: tuple[WorkerSpec, ...]
    stops: tuple[str, ...]
