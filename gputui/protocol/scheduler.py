"""Head ↔ its child, the scheduler: what it counts, and what only it can do to its workers."""

from dataclasses import dataclass
from typing import ClassVar

from gputui.model.snapshot import TaskGroupStatus, TaskSpan
from gputui.protocol.shared import Delivery


@dataclass(frozen=True, slots=True)
class ConfigureScheduler:
    """The scheduler's first line on stdin."""

    version: int
    host: str
    """The address to listen on."""
    port: int
    certificate_pem: str
    key_pem: str
    dask_config_json: str
    report_interval_s: float
    scratch: str
    """A folder that it may make for files which clients upload; the head removes it."""
    dashboard_address: str = ""
    """Where to serve Dask's dashboard, loopback only; "" for no HTTP server at all."""


@dataclass(frozen=True, slots=True)
class Retire:
    """Move what these workers hold elsewhere, then forget them; answered by `Retired`."""

    request: int
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Remove:
    """Forget these workers at once, so that their names are free."""

    names: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Aim:
    """Estimate how many workers do the work in this time; None is as Dask is configured."""

    target_duration_s: float | None


@dataclass(frozen=True, slots=True)
class StopScheduler:
    """Close the scheduler and end."""


ToScheduler = ConfigureScheduler | Retire | Remove | Aim | StopScheduler
"""What a head sends."""


@dataclass(frozen=True, slots=True)
class SchedulerStarted:
    """The scheduler listens."""

    pid: int
    port: int
    dashboard: str = ""


@dataclass(frozen=True, slots=True)
class WorkerCounts:
    """The scheduler's counts for one worker."""

    name: str
    address: str
    status: str
    """Dask's: init, running, paused, closing_gracefully, closing."""
    nthreads: int
    executing: int
    ready: int
    in_memory: int
    managed_bytes: int
    spilled_bytes: int
    memory_limit_bytes: int
    device_managed_bytes: int | None = None
    device_uuid: str | None = None
    current_task: str | None = None
    task_since: float | None = None
    silent_s: float = 0.0
    """How long its heartbeats have been missing; 0 while they come."""


@dataclass(frozen=True, slots=True)
class Counts:
    """The scheduler's counts, once a second unless its loop is busy."""

    delivery: ClassVar[Delivery] = Delivery.LATEST

    at: float
    workers: tuple[WorkerCounts, ...]
    groups: tuple[TaskGroupStatus, ...]
    tasks: int
    queued: int
    clients: int
    adaptive_target: int
    spans: tuple[TaskSpan, ...] = ()


@dataclass(frozen=True, slots=True)
class Retired:
    """The named workers that moved their results and ended; the others could not."""

    request: int
    names: tuple[str, ...]
    error: str = ""


@dataclass(frozen=True, slots=True)
class RetiredByClient:
    """A Dask client had these workers retired: they are wanted no more."""

    names: tuple[str, ...]


FromScheduler = SchedulerStarted | Counts | Retired | RetiredByClient
"""What a scheduler sends."""
