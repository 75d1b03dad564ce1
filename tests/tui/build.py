"""Snapshots made by hand, for tests of what the screen thinks."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from gputui.model.readings import DeviceReading
from gputui.model.snapshot import (
    ClusterState,
    HostState,
    HostStatus,
    SchedulerState,
    SchedulerStatus,
    Snapshot,
    WorkerState,
    WorkerStatus,
)

GIB = 2**30
EPOCH = 1_700_000_000.0


def texts(lines: Iterable[Iterable[tuple[str, str]]]) -> list[str]:
    """Return the texts of lines, each made of texts and their roles."""
    return ["".join(text for text, _ in line) for line in lines]


def device(number: int = 0, host: str = "h", **readings: Any) -> DeviceReading:
    """Return a GPU of 80 GiB that does nothing."""
    known: dict[str, Any] = {
        "memory_total_bytes": 80 * GIB,
        "memory_used_bytes": GIB,
        "utilization_percent": 0.0,
        "temperature_c": 40.0,
        "power_w": 70.0,
        "power_limit_w": 400.0,
    }
    return DeviceReading(f"GPU-{host}-{number}", str(number), "A100", **{**known, **readings})


def host(name: str = "h", *devices: DeviceReading, **values: Any) -> HostStatus:
    """Return a host that is ready, with these devices."""
    values = {"state": HostState.READY, "state_since": EPOCH, **values}
    return HostStatus(name, devices=devices, **values)


def worker(number: int = 0, on: str = "h", **values: Any) -> WorkerStatus:
    """Return an idle worker on a GPU of that number."""
    uuid = f"GPU-{on}-{number}"
    values = {"state": WorkerState.IDLE, "device_uuid": uuid, "seen_device_uuid": uuid, **values}
    return WorkerStatus(f"{on}:gpu{number}", on, **values)


def snapshot(*hosts: HostStatus, workers: tuple[WorkerStatus, ...] = (), **values: Any) -> Snapshot:
    """Return a running cluster; `queued` and `at` say more."""
    queued, at = values.pop("queued", 0), values.pop("at", EPOCH)
    scheduler = SchedulerStatus(SchedulerState.RUNNING, queued=queued)
    made = Snapshot(
        1, at, "lab", ClusterState.RUNNING, EPOCH, scheduler, hosts=hosts, workers=workers
    )
    return replace(made, **values)
