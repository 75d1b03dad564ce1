"""A cluster at one moment: frozen values, joined by worker name.

The head builds a `Snapshot` from the agents' telemetry and the scheduler's counts, once a
second; the screen, `ls --json` and the metrics only read it. A reading that is missing is
`None`, never 0. Times are seconds since the epoch (UTC); rates are per second.
"""

from enum import StrEnum

from gputui.model.bounds import (
    Bytes,
    CpuPercent,
    Devices,
    Document,
    Fleet,
    Line,
    Many,
    Moment,
    Name,
    Number,
    Options,
    Pid,
    Restarts,
    Seconds,
    SmallNumber,
    Some,
    SumOfSeconds,
    Text,
    WorkerNumber,
)
from gputui.model.frozen import frozen
from gputui.model.readings import UNREAD, DeviceReading, HostReading, ProcessReading
from gputui.model.usage import Failure, Moved, PrefixUsage, Usage


class HostState(StrEnum):
    """The states of a host; the first six in this order."""

    RESOLVING = "resolving"
    CONNECTING = "connecting"
    AUTHENTICATING = "authenticating"
    PROBING = "probing"
    CHECKING = "checking"
    READY = "ready"
    SILENT = "silent"
    RECONNECTING = "reconnecting"
    FAILED = "failed"

    @property
    def final(self) -> bool:
        """Whether the host has come to an end of its start: up, or given up."""
        return self in (HostState.READY, HostState.FAILED)


AWAY = (HostState.SILENT, HostState.RECONNECTING)
"""The states of a host that does not answer. A constant: to look up a member of an enumeration
takes Python 3.11 longer than all else that is done with it for each of thousands of GPUs."""
RETRIED = (HostState.FAILED, HostState.RECONNECTING)
"""The states of a host that can be tried again at once."""


class WorkerState(StrEnum):
    """A worker's life: desired → starting → registered → busy/idle → retiring.

    One that does not answer is silent, whatever it was before.
    """

    WANTED = "wanted"
    STARTING = "starting"
    REGISTERED = "registered"
    BUSY = "busy"
    IDLE = "idle"
    PAUSED = "paused"
    SILENT = "silent"
    RETIRING = "retiring"
    CRASHED = "crashed"
    CRASH_LOOP = "crash-loop"

    @property
    def up(self) -> bool:
        """Whether the scheduler can give this worker tasks."""
        return self in UP


UP = (WorkerState.BUSY, WorkerState.IDLE, WorkerState.PAUSED, WorkerState.REGISTERED)


class ClusterState(StrEnum):
    """The cluster as a whole."""

    WATCHING = "watching"
    """Without a scheduler, which starts with the first worker."""
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    FAILED = "failed"


class SchedulerState(StrEnum):
    """The scheduler process: `BUSY` is a loop that has not answered for over 2 s."""

    NONE = "none"
    STARTING = "starting"
    RUNNING = "running"
    BUSY = "busy"
    LOST = "lost"


class RunState(StrEnum):
    """A run from the moment the head knows of it."""

    STARTING = "starting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"
    LOST = "lost"

    @property
    def ended(self) -> bool:
        """Whether nothing more will happen to it."""
        return self not in (RunState.STARTING, RunState.RUNNING)


@frozen
class HostStatus:
    """One host: its state, the reason, and what its agent reads."""

    name: Name
    state: HostState
    state_since: Moment
    reason: Document = ""
    """Why it is silent or failed, or what it is waiting for; "" when all is well."""
    hint: Document = ""
    failed_stage: Name = ""
    """For a failed host, the `HostState` it failed in."""
    stderr_tail: Some[Document] = ()
    address: Name = ""
    reading: HostReading = UNREAD
    read_at: Moment | None = None
    """When the agent's last telemetry came; its age is shown for a silent host."""
    devices: Devices[DeviceReading] = ()
    warnings: Many[Document] = ()
    by_hand: Line = ""
    """The words with which a person runs a command there."""

    @property
    def cause(self) -> str:
        """The reason, for where the host is named already.

        >>> HostStatus("b", HostState.FAILED, 0.0, "b:22 refuses the connection").cause
        ':22 refuses the connection'
        """
        rest = self.reason.removeprefix(self.name)
        return rest.lstrip() if rest.startswith((" ", ":")) else self.reason


@frozen
class WorkerStatus(ProcessReading):
    """One worker: what the agent and the scheduler know of it, joined by name."""

    name: Name
    host: Name
    state: WorkerState
    device_uuid: Name | None = None
    """The GPU or MIG instance it was pinned to; None for a CPU worker."""
    seen_device_uuid: Name | None = None
    """The device its CUDA context is on, by UUID; differs only when the pinning failed."""
    pid: Pid | None = None
    address: Name | None = None
    reason: Document = ""
    memory_limit_bytes: Bytes | None = None
    executing: Number | None = None
    ready: Number | None = None
    in_memory: Number | None = None
    managed_bytes: Bytes | None = None
    device_managed_bytes: Bytes | None = None
    """Bytes of results on the device."""
    spilled_bytes: Bytes | None = None
    restarts: Restarts = 0
    """How often its process died; each time it is started again, unless in a crash loop."""
    nthreads: SmallNumber = 1
    current_task: Document | None = None
    """The prefix of a task it executes now."""
    task_since: Moment | None = None
    """When that task began; None until the worker has reported it."""
    silent_for_s: Seconds = 0.0
    """How long its heartbeats to the scheduler have been missing; 0 while they come."""
    fetching: bool = False
    """Whether it computes nothing, and fetches results from other workers."""
    moved: Moved = ()
    """What came to it from other workers since it started."""

    @property
    def threads_percent(self) -> float | None:
        """Its CPU as a share of what its threads can use."""
        return None if self.cpu_percent is None else self.cpu_percent / self.nthreads

    @property
    def tasks(self) -> int | None:
        """Tasks that it runs, or that are ready to run on it."""
        return None if self.executing is None else self.executing + (self.ready or 0)


@frozen
class TaskGroupStatus:
    """A group of tasks of one kind, as the scheduler counts them."""

    name: Document
    prefix: Document
    waiting: Number = 0
    queued: Number = 0
    no_worker: Number = 0
    processing: Number = 0
    """Tasks that workers have: those that run, and those that wait for one of its threads."""
    executing: Number = 0
    """Tasks that run."""
    needs: Many[Document] = ()
    """The restrictions of the tasks in `no_worker`: a resource, a host, a worker's address."""
    memory: Number = 0
    released: Number = 0
    erred: Number = 0
    forgotten: Number = 0
    compute_s: SumOfSeconds = 0.0
    """Seconds of computing on all workers so far."""
    transfer_s: SumOfSeconds = 0.0
    nbytes: Bytes = 0

    @property
    def total(self) -> int:
        """All tasks that were ever in it."""
        return self.waiting + self.queued + self.no_worker + self.processing + self.finished

    @property
    def finished(self) -> int:
        """Tasks that need no more work, well or badly ended."""
        return self.memory + self.released + self.erred + self.forgotten


@frozen
class SchedulerStatus:
    """The scheduler process and what it counts."""

    state: SchedulerState
    address: Name = ""
    pid: Pid | None = None
    busy_s: Seconds = 0.0
    """How long its loop has not answered, 0 when it does."""
    tasks: Number = 0
    queued: Number = 0
    """Tasks that wait for a worker that is free."""
    clients: WorkerNumber = 0
    cpu_percent: CpuPercent | None = None
    rss_bytes: Bytes | None = None
    reason: Document = ""


@frozen
class RunStatus:
    """A run that the head knows, from its start to its end."""

    id: Name
    preset: Line
    parameters: Options
    state: RunState
    started_at: Moment
    ended_at: Moment | None = None
    done: Number = 0
    total: Number = 0
    """Tasks; 0 as long as it is not known."""
    stage: Name = ""
    """The present stage in a word or two: building, computing, checking."""
    summary: Document = ""
    """The result in a line, or why it was lost."""
    result_json: Document = ""
    """The `--json` object of an ended run."""
    restarts: Restarts = 0
    """Workers restarted while it ran."""
    failure: Failure | None = None
    timings: Some[tuple[Name, Seconds]] = ()
    """How long each stage took, of an ended run."""
    user: Name = ""
    """Who started it, of a run that the head knows."""
    usage: Usage | None = None
    """What an ended run took."""
    hosts: Document = ""
    """As they were given; "" is this machine."""
    versions: Some[tuple[Name, Name]] = ()
    """Library → version."""
    cwd: Line = ""
    """The folder that it was started in."""
    backend: Name = "auto"
    """As it was asked for."""

    @property
    def words(self) -> str:
        """How it failed, or what it came to."""
        return self.failure.text if self.failure else self.summary


class Severity(StrEnum):
    """How serious an event is."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@frozen
class Event:
    """Something that happened, kept by the head for those who attach later."""

    sequence: Number
    at: Moment
    severity: Severity
    subject: Name
    """A host, a worker, a run, or "scheduler" / "cluster"."""
    kind: Name
    """A past participle or a state: connected, crashed, retired, scaled, alarm."""
    text: Text
    alarm: Name = ""
    """The `AlarmKind` that is raised or no longer so; "" of anything else."""


@frozen
class Session:
    """An attached frontend, and where it is, for other users to see."""

    frontend: Name
    """screen, run, program, python or command."""
    pid: Pid = 0
    user: Name = ""
    terminal: Line = ""
    """`pts/3`; "" without one."""
    client: Line = ""
    """The address that its SSH connection comes from; "" on this machine itself."""
    attached_at: Moment = 0.0

    def __str__(self) -> str:
        """Describe who this is.

        >>> str(Session("screen", 7, "alice", "pts/3", "10.0.0.9"))
        'alice on pts/3 (ssh from 10.0.0.9)'
        >>> str(Session("python", 7, "alice")), str(Session("run"))
        ('alice (python)', 'run')
        """
        where = f" on {self.terminal}" if self.terminal else ""
        ssh = f"ssh from {self.client}" if self.client else ""
        kind = "" if self.frontend == "screen" and self.user else self.frontend
        how = ", ".join(word for word in (kind if self.user else "", ssh) if word)
        return f"{self.user or self.frontend}{where}" + (f" ({how})" if how else "")


@frozen
class TaskSpan:
    """One task that ran on a worker, for the task stream."""

    worker: Name
    prefix: Document
    started_at: Moment
    duration_s: Seconds
    erred: bool = False


@frozen
class Snapshot:
    """The whole cluster at `taken_at`; `sequence` grows by one with each."""

    sequence: Number
    taken_at: Moment
    name: Name
    state: ClusterState
    started_at: Moment
    scheduler: SchedulerStatus
    hosts: Fleet[HostStatus] = ()
    workers: Fleet[WorkerStatus] = ()
    groups: Fleet[TaskGroupStatus] = ()
    runs: Fleet[RunStatus] = ()
    spans: Fleet[TaskSpan] = ()
    """Tasks that ended since the last snapshot (a bounded sample)."""
    prefixes: Some[PrefixUsage] = ()
    """What all tasks did since the scheduler started, those that computed longest."""
    wanted_workers: WorkerNumber | None = None
    """None is: as many as the hosts give."""
    sessions: Fleet[Session] = ()
    """Who is attached, the first to come first."""
    reason: Document = ""
    lacking: Document = ""
    """Why it has too few free GPUs, where it takes only those: who has them, and who waits."""
    simulated: bool = False
    ends_with_screens: bool = False
    """Whether it only watches, and ends with its last screen."""

    @property
    def workers_up(self) -> int:
        """Workers that the scheduler can give tasks."""
        return sum([worker.state in UP for worker in self.workers])

    @property
    def any_up(self) -> bool:
        """Whether there is such a worker: in most snapshots the first is one."""
        return any(worker.state in UP for worker in self.workers)
