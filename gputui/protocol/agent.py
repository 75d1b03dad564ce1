"""Head ↔ agent: configure a host, run workers on it, and report on its devices and workers.

An agent's stream begins with `MARKER`; then the head says `Configure`, and the agent answers
with its `Facts`.
"""

from typing import ClassVar

from gputui.model.bounds import (
    Bytes,
    Cpus,
    Devices,
    Few,
    Line,
    Many,
    Moment,
    Name,
    Number,
    Options,
    Pid,
    Port,
    Reason,
    Restarts,
    Seconds,
    SmallNumber,
    Some,
    Text,
)
from gputui.model.examination import ExaminedHost
from gputui.model.frozen import frozen
from gputui.model.plan import WorkerSpec
from gputui.model.readings import DeviceReading, HostReading, Note, ProcessReading
from gputui.protocol.programs import (
    EndPrograms,
    FolderTaken,
    FromProgram,
    SendFolder,
    StartProgram,
    ToProgram,
)
from gputui.protocol.shared import Credentials, Delivery, FollowLogs, LogLines, Numbered

MARKER = b"gputui-agent-stream-1"
"""The line that starts an agent's stream; what a login shell prints before it is skipped."""


@frozen
class Configure:
    """The first message on every agent channel; a reconnecting head sends it again."""

    cluster_id: Name
    host: Name
    lease_s: Seconds
    telemetry_interval_s: Seconds
    env: Options
    """The host's `env.X=`, to be set before NumPy and the loader read it."""
    temporary_directory: Line | None = None
    """Where workers keep their files; None is where the host keeps such things."""
    cluster: Name = ""
    """The cluster's name, for the notes of its claims."""
    promised_until: Moment | None = None
    """When its user means to be done, for the notes of its claims."""
    frontends: Many[Pid] = ()
    """As in `KnowFrontends`."""
    compressed: bool = False
    """Whether to compress what the agent answers, and all after it."""
    once: bool = False
    """Whether the facts are all that is asked for: no agent is to stay for them."""
    workers_wanted: bool = True
    """Whether workers are about to be: a forkserver takes a second of CPU to import."""


@frozen
class KnowFrontends:
    """Count these processes of this host, and their children, as the cluster's own."""

    pids: Many[Pid]


@frozen
class Reach(Numbered):
    """Try to open a TCP connection, to the scheduler or another host; answered by `Reached`."""

    host: Name
    port: Port
    timeout_s: Seconds


@frozen
class Listen(Numbered):
    """Open a port for a while, for others to try; answered by `Listening`."""

    host: Name
    """An address, or an interface's name."""
    ports: Few[Port] = ()
    """The first and the last of those to choose from; () is any."""


@frozen
class StopListening:
    """Close the ports that were opened for others to try: somebody else is to listen there."""


@frozen
class StandInLine(Numbered):
    """Wait for `gpus` of these, answered by `Claimed`; for none, leave the line."""

    uuids: Devices[Name]
    gpus: SmallNumber
    note: Note
    place: Number = 0
    """0 for after everybody who waits already."""


@frozen
class ClaimGpus(Numbered):
    """Claim all of these or none, for as long as the agent lives; answered by `Claimed`."""

    uuids: Devices[Name]
    note: Note
    pid: Pid | None = None
    """Release them, and say `ClaimEnded`, when this process of the agent's user has ended."""


@frozen
class EndClaims(Numbered):
    """End the processes of the agent's user that do nothing but hold these; as `ClaimGpus`."""

    uuids: Devices[Name]


@frozen
class ReleaseGpus(Numbered):
    """End claims of this agent; answered as `ClaimGpus`."""

    uuids: Devices[Name]


@frozen
class StartWorkers:
    """Start these; one that runs already under that name is left alone."""

    specs: Many[WorkerSpec]
    scheduler_address: Name
    """`tls://host:port`, as this host reaches it."""
    listen_host: Name
    """The address that the workers listen on and announce."""
    ports: Few[Port] = ()
    """The first and the last port that they may listen on; () is any."""
    contact_host: Name = ""
    """The address to announce in place of that which they listen on."""


@frozen
class StopWorkers:
    """End these for good: asked first, killed by process group after `grace_s`."""

    names: Many[Name]
    grace_s: Seconds


@frozen
class RestartWorkers:
    """Restart these, those in a crash loop included."""

    names: Many[Name]


@frozen
class Examine(Numbered):
    """Examine the workers and the host; answered by `HostExamined` within some 2 s."""


@frozen
class KeepLease:
    """Keeps the lease of an agent whose telemetry comes, as every message does; never answered."""


@frozen
class Ping:
    """Keeps the lease of an agent that says nothing; answered by `Pong` with the same number."""

    number: Number


@frozen
class Shutdown:
    """Stop all workers and end, at once; the agent closes the stream when nothing is left."""

    grace_s: Seconds


ToAgent = (
    Configure
    | KnowFrontends
    | Credentials
    | Reach
    | Listen
    | StopListening
    | StandInLine
    | ClaimGpus
    | ReleaseGpus
    | EndClaims
    | StartWorkers
    | StopWorkers
    | RestartWorkers
    | FollowLogs
    | Examine
    | KeepLease
    | Ping
    | Shutdown
    | SendFolder
    | StartProgram
    | ToProgram
    | EndPrograms
)
"""What a head sends."""


@frozen
class Pong:
    """The answer to a `Ping`."""

    number: Number


@frozen
class WorkerStarted:
    """A worker's process was forked, now or before a head connected again."""

    name: Name
    pid: Pid | None
    """None, among facts, between two processes: one ended, and the next is due or being forked."""
    restarts: Restarts


@frozen
class Facts:
    """A host's facts, sent once, in answer to `Configure`. Versions from metadata, "" if absent."""

    agent_pid: Pid
    python: Line
    """The interpreter's path."""
    python_version: Name
    packages: Some[tuple[Name, Name]]
    """Distribution name → version for dask, distributed, numpy, cupy, dask-cuda and others."""
    cuda_driver: Name
    """The newest CUDA that the driver runs, `13.0`; "" without a driver."""
    cpus: Cpus
    """CPUs this process may use: its affinity and its cgroup's quota, rounded up."""
    memory_total_bytes: Bytes
    disk_free_bytes: Bytes
    devices: Devices[DeviceReading]
    cuda_visible_devices: Line | None
    running: Many[WorkerStarted]
    warnings: Few[Line] = ()
    gpus_known: bool = True
    """Whether NVML has said which GPUs there are, or that there can be none."""
    others_hidden: bool = False
    """Whether /proc hides the processes of others."""
    limits: Few[tuple[Line, Line]] = ()
    """(limit that will end or throttle the agent, what to set)."""


@frozen
class WorkerReading(ProcessReading):
    """An agent's reading of one worker's process."""

    name: Name


@frozen
class Telemetry:
    """Every GPU, the host and each worker, once a second."""

    delivery: ClassVar[Delivery] = Delivery.LATEST

    at: Moment
    host: HostReading
    devices: Devices[DeviceReading]
    workers: Many[WorkerReading]


@frozen
class Reached(Numbered):
    """Whether a port could be reached; `error` is "" when it could."""

    error: Text
    local_address: Name = ""
    """This end of the connection, if it was made."""


@frozen
class Listening(Numbered):
    """The port that was opened; 0 with the `error` where none could be."""

    port: Port
    error: Text = ""
    address: Name = ""
    """Where, also for an interface."""


@frozen
class Claimed(Numbered):
    """The answer to what is asked about claims; one that is not empty says what went wrong."""

    held: Devices[Name] = ()
    """UUIDs that somebody else holds."""
    ahead: Few[Name] = ()
    """Users who wait and come first."""
    error: Text = ""
    place: Number = 0
    """Of `StandInLine`: the place in line; the lowest comes first."""


@frozen
class HostExamined(Numbered):
    """What an agent found on its host."""

    host: ExaminedHost


@frozen
class ClaimEnded:
    """GPUs are no longer claimed: their process has ended, or somebody else has one of them."""

    why: Line = ""
    """Who has one of them; "" where the process has ended."""


@frozen
class WorkerReady:
    """A worker registered with the scheduler, or, later, made its CUDA context."""

    name: Name
    address: Name
    device_uuid: Name | None
    """The device that its CUDA context is on; None before there is one."""


@frozen
class WorkerExited:
    """A worker's process ended."""

    name: Name
    kind: Name
    """stopped, closed, crashed, signal, memory-limit, oom-killer, address, or one of a failure, as
    `gputui.agent.worker_process` makes it."""
    reason: Reason
    """Why, with the hint where one is known."""
    restart_in_s: Seconds | None
    """When it will be started again; None when it will not."""
    crash_loop: bool
    """Whether it failed five times in a row and waits for `RestartWorkers`."""


@frozen
class Trouble:
    """A problem of a host, not of one worker."""

    text: Text


@frozen
class AgentEnding:
    """The agent ends though no head asked it to: why, and the last lines of its log."""

    reason: Text
    log_tail: Some[Line]


FromAgent = (
    Pong
    | Facts
    | Telemetry
    | Reached
    | Listening
    | Claimed
    | ClaimEnded
    | HostExamined
    | WorkerStarted
    | WorkerReady
    | WorkerExited
    | Trouble
    | AgentEnding
    | LogLines
    | FolderTaken
    | FromProgram
)
"""What an agent sends."""
