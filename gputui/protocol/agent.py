"""Head ↔ agent: configure a host, run workers on it, and report on its devices and workers.

An agent's stream begins with `MARKER`; then the head says `Configure`, and the agent answers
with its `Facts`.
"""

from dataclasses import dataclass
from typing import ClassVar

from gputui.model.plan import WorkerSpec
from gputui.model.readings import DeviceReading, HostReading
from gputui.protocol.shared import Delivery, LogLines, check_moment

MARKER = b"gputui-agent-stream-1"
"""The line that starts an agent's stream; what a login shell prints before it is skipped."""


@dataclass(frozen=True, slots=True)
class Configure:
    """The first message on every agent channel; a reconnecting head sends it again."""

    version: int
    cluster_id: str
    host: str
    lease_s: float
    telemetry_interval_s: float
    env: tuple[tuple[str, str], ...]
    """The host's `env.X=`, to be set before NumPy and the loader read it."""
    temporary_directory: str | None = None
    """Where workers keep their files; None is where the host keeps such things."""
    cluster: str = ""
    """The cluster's name, for other clusters of this user on the host."""
    frontends: tuple[int, ...] = ()
    """As in `KnowFrontends`."""
    only_examined: bool = False
    """Whether no worker will be wanted: a forkserver takes a second of CPU to import."""


@dataclass(frozen=True, slots=True)
class KnowFrontends:
    """Take these processes of this host, and what they start, as the cluster's own."""

    pids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Credentials:
    """Workers' credentials: TLS material (PEM text) and Dask's configuration (JSON)."""

    certificate_pem: str
    key_pem: str
    dask_config_json: str


@dataclass(frozen=True, slots=True)
class Reach:
    """Try to open a TCP connection, to the scheduler or another host; answered by `Reached`."""

    host: str
    port: int
    timeout_s: float


@dataclass(frozen=True, slots=True)
class StartWorkers:
    """Start these; one that runs already under that name is left alone."""

    specs: tuple[WorkerSpec, ...]
    scheduler_address: str
    """`tls://host:port`, as this host reaches it."""
    listen_host: str
    """The address that the workers listen on and announce."""


@dataclass(frozen=True, slots=True)
class StopWorkers:
    """End these for good: asked first, killed by process group after `grace_s`."""

    names: tuple[str, ...]
    grace_s: float


@dataclass(frozen=True, slots=True)
class RestartWorkers:
    """Restart these, those in a crash loop included."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FollowLogs:
    """Send `LogLines` of all workers here from now on (after the last `history` lines), or stop."""

    on: bool
    history: int = 200


@dataclass(frozen=True, slots=True)
class KeepLease:
    """Keeps the lease of an agent whose telemetry comes, as every message does; never answered."""


@dataclass(frozen=True, slots=True)
class Ping:
    """Keeps the lease of an agent that says nothing; answered by `Pong` with the same number."""

    number: int


@dataclass(frozen=True, slots=True)
class Shutdown:
    """Stop all workers and end, at once; the agent closes the stream when nothing is left."""

    grace_s: float


ToAgent = (
    Configure
    | KnowFrontends
    | Credentials
    | Reach
    | StartWorkers
    | StopWorkers
    | RestartWorkers
    | FollowLogs
    | KeepLease
    | Ping
    | Shutdown
)
"""What a head sends."""


@dataclass(frozen=True, slots=True)
class Pong:
    """The answer to a `Ping`."""

    number: int


@dataclass(frozen=True, slots=True)
class RunningWorker:
    """A worker that an agent already has when a head connects again."""

    name: str
    pid: int | None
    """None while it is between two processes: one ended, and the next is due or being forked."""
    restarts: int


@dataclass(frozen=True, slots=True)
class Facts:
    """A host's facts, sent once, in answer to `Configure`. Versions from metadata, "" if absent."""

    version: int
    agent_pid: int
    python: str
    """The interpreter's path."""
    python_version: str
    packages: tuple[tuple[str, str], ...]
    """Distribution name → version for dask, distributed, numpy, cupy, dask-cuda and others."""
    cuda_driver: str
    """The newest CUDA that the driver runs, `13.0`; "" without a driver."""
    cpus: int
    """CPUs this process may use: its affinity and its cgroup's quota, rounded up."""
    memory_total_bytes: int
    disk_free_bytes: int
    devices: tuple[DeviceReading, ...]
    cuda_visible_devices: str | None
    running: tuple[RunningWorker, ...]
    warnings: tuple[str, ...] = ()
    driver_version: str = ""
    """The NVIDIA driver's own version, `580.159.04`."""
    gpus_known: bool = True
    """Whether NVML has said which GPUs there are, or that there can be none."""
    clusters: tuple[str, ...] = ()
    """Other clusters of this user that have an agent on this host, by name."""


@dataclass(frozen=True, slots=True)
class WorkerReading:
    """An agent's reading of one worker's process."""

    name: str
    cpu_percent: float | None
    rss_bytes: int | None
    open_files: int | None
    stopped: bool = False
    """Whether a signal has stopped its process."""


@dataclass(frozen=True, slots=True)
class Telemetry:
    """Every GPU, the host and each worker, once a second."""

    delivery: ClassVar[Delivery] = Delivery.LATEST

    at: float
    host: HostReading
    devices: tuple[DeviceReading, ...]
    workers: tuple[WorkerReading, ...]

    def __post_init__(self) -> None:
        """Refuse a time that nobody can show."""
        check_moment(self.at)


@dataclass(frozen=True, slots=True)
class Reached:
    """Whether a port could be reached; `error` is "" when it could."""

    host: str
    port: int
    error: str
    local_address: str = ""
    """This end of the way there; "" where nothing answered, not even that the port is closed."""


@dataclass(frozen=True, slots=True)
class ForkserverReady:
    """The forkserver has imported what workers need."""

    seconds: float


@dataclass(frozen=True, slots=True)
class WorkerStarted:
    """A worker's process was forked."""

    name: str
    pid: int
    restarts: int


@dataclass(frozen=True, slots=True)
class WorkerReady:
    """A worker registered with the scheduler, or, later, made its CUDA context."""

    name: str
    address: str
    device_uuid: str | None
    """The device that its CUDA context is on; None before there is one."""


@dataclass(frozen=True, slots=True)
class WorkerExited:
    """A worker's process ended."""

    name: str
    pid: int
    kind: str
    """stopped, closed, crashed, memory-limit, oom-killer, cuda-error, import-error, address or
    signal, as `gputui.agent.exits` makes it."""
    reason: str
    """Why, with the hint where one is known."""
    exit_code: int | None
    signal: int | None
    log_tail: tuple[str, ...]
    restart_in_s: float | None
    """When it will be started again; None when it will not."""
    crash_loop: bool
    """Whether it failed five times in a row and waits for `RestartWorkers`."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """A problem of a host, not of one worker."""

    text: str


@dataclass(frozen=True, slots=True)
class AgentEnding:
    """The agent ends though no head asked it to: why, and the last lines of its log."""

    reason: str
    log_tail: tuple[str, ...]


FromAgent = (
    Pong
    | Facts
    | Telemetry
    | Reached
    | ForkserverReady
    | WorkerStarted
    | WorkerReady
    | WorkerExited
    | Trouble
    | AgentEnding
    | LogLines
)
"""What an agent sends."""
