"""Head ↔ its child, the scheduler: what it counts, and what only it can do to its workers."""

from typing import ClassVar

from gputui.model.bounds import (
    Bytes,
    Document,
    Fleet,
    Line,
    Moment,
    Name,
    Number,
    Port,
    Seconds,
    Some,
    WorkerNumber,
)
from gputui.model.frozen import frozen
from gputui.model.snapshot import TaskGroupStatus, TaskSpan
from gputui.model.usage import Moved, PrefixUsage
from gputui.protocol.shared import Credentials, Delivery, Numbered


@frozen
class ConfigureScheduler:
    """The scheduler's first line on stdin."""

    host: Name
    """The address to listen on."""
    port: Port
    credentials: Credentials
    report_interval_s: Seconds
    scratch: Line
    """A folder that it may make for files which clients upload; the head removes it."""
    dashboard_port: Port | None = None
    """Where to serve Dask's dashboard on the loopback address; None for no HTTP server at all."""


@frozen
class Retire(Numbered):
    """Move what these workers hold elsewhere, then forget them; answered by `Retired`."""

    names: Fleet[Name]


@frozen
class Remove:
    """Forget these workers at once, so that their names are free."""

    names: Fleet[Name]
    reason: Document


@frozen
class StopScheduler:
    """Close the scheduler and end."""


ToScheduler = ConfigureScheduler | Retire | Remove | StopScheduler
"""What a head sends."""


@frozen
class SchedulerStarted:
    """The scheduler listens."""

    port: Port
    dashboard: Name = ""


@frozen
class WorkerCounts:
    """The scheduler's counts for one worker."""

    name: Name
    status: Name
    """Dask's: init, running, paused, closing_gracefully, closing."""
    executing: Number
    ready: Number
    in_memory: Number
    managed_bytes: Bytes
    spilled_bytes: Bytes
    device_managed_bytes: Bytes | None = None
    device_uuid: Name | None = None
    current_task: Document | None = None
    task_since: Moment | None = None
    silent_s: Seconds = 0.0
    """How long its heartbeats have been missing; 0 while they come."""
    fetching: bool = False
    """Whether it computes nothing, as it said last, and fetches results from others."""
    moved: Moved = ()
    """What came to it from others since it started."""


@frozen
class Counts:
    """The scheduler's counts, once a second unless its loop is busy."""

    delivery: ClassVar[Delivery] = Delivery.LATEST

    workers: Fleet[WorkerCounts]
    groups: Fleet[TaskGroupStatus]
    tasks: Number
    queued: Number
    clients: WorkerNumber
    spans: Fleet[TaskSpan] = ()
    prefixes: Some[PrefixUsage] = ()


@frozen
class Retired(Numbered):
    """The named workers that moved their results and ended; the others could not."""

    names: Fleet[Name]
    error: Document = ""


@frozen
class RetiredByClient:
    """A Dask client retired these workers; they are no longer desired."""

    names: Fleet[Name]


@frozen
class ClosedWhenIdle:
    """It was idle for as long as Dask's setting allows, and closes."""


FromScheduler = SchedulerStarted | Counts | Retired | RetiredByClient | ClosedWhenIdle
"""What a scheduler sends."""
