"""Every message on the three links, once: face–head, head–agent, head–scheduler.

A message is a frozen dataclass; on the wire it is one JSON line, `["Name", field, field, …]`,
nested values as arrays of their fields in order. Both ends are always the same version: the
agent is sent by hash, and a face and a head compare `VERSION` in their first messages.
`encode` and `decode` are the only way on and off the wire.
"""

import json
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from enum import StrEnum
from functools import cache
from operator import attrgetter
from typing import Any

from gputui.errors import ProtocolError
from gputui.plan import WorkerSpec
from gputui.snapshot import (
    DeviceReading,
    Event,
    HostReading,
    HostStatus,
    Snapshot,
    TaskGroupStatus,
    TaskSpan,
    WorkerStatus,
)

VERSION = 1
"""Raised with every change of a message."""

MARKER = b"gputui-agent-stream-1"
"""The line that starts an agent's stream; what a login shell prints before it is skipped."""

MAX_LINE_BYTES = 64 * 2**20
"""No line may be longer; a stream that sends one is broken."""


# Head → agent


@dataclass(frozen=True, slots=True)
class Configure:
    """The first message on every agent link; a reconnecting head sends it again."""

    version: int
    cluster_id: str
    host: str
    lease_s: float
    telemetry_interval_s: float
    env: tuple[tuple[str, str], ...]
    """The host's `env.X=`, to be set before NumPy and the loader read it."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """What workers need to join: TLS material (PEM text) and Dask's configuration (JSON)."""

    certificate_pem: str
    key_pem: str
    dask_config_json: str


@dataclass(frozen=True, slots=True)
class Reach:
    """Try to open a TCP connection to the scheduler; answered by `Reached`."""

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
    """The address that the workers listen on and tell the others."""


@dataclass(frozen=True, slots=True)
class StopWorkers:
    """End these for good: asked first, killed by process group after `grace_s`."""

    names: tuple[str, ...]
    grace_s: float


@dataclass(frozen=True, slots=True)
class RestartWorkers:
    """End and start these anew, parked ones included."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FollowLogs:
    """Send `LogLines` of all workers here from now on (after the last `history` lines), or stop."""

    on: bool
    history: int = 200


@dataclass(frozen=True, slots=True)
class Ping:
    """Keeps the lease; answered by `Pong` with the same number."""

    number: int


@dataclass(frozen=True, slots=True)
class Shutdown:
    """Stop all workers and end, at once; the agent closes the stream when nothing is left."""

    grace_s: float


# Agent → head


@dataclass(frozen=True, slots=True)
class Pong:
    """The answer to a `Ping`."""

    number: int


@dataclass(frozen=True, slots=True)
class RunningWorker:
    """A worker that an agent already has when a head connects again."""

    name: str
    pid: int
    restarts: int


@dataclass(frozen=True, slots=True)
class DeviceCpus:
    """The CPUs near a GPU (a MIG instance has its parent's) that this process may use."""

    uuid: str
    cpus: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Facts:
    """What a host is: sent once, in answer to `Configure`. Versions from metadata, "" if absent."""

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
    machine_id: str
    devices: tuple[DeviceReading, ...]
    cuda_visible_devices: str | None
    slurm_job_id: str | None
    running: tuple[RunningWorker, ...]
    warnings: tuple[str, ...] = ()
    driver_version: str = ""
    """The NVIDIA driver's own version, `580.159.04`."""
    device_cpus: tuple[DeviceCpus, ...] = ()


@dataclass(frozen=True, slots=True)
class WorkerReading:
    """What an agent reads of one worker's process."""

    name: str
    cpu_percent: float | None
    rss_bytes: int | None
    open_files: int | None


@dataclass(frozen=True, slots=True)
class Telemetry:
    """Every GPU, the host and each worker, once a second."""

    at: float
    host: HostReading
    devices: tuple[DeviceReading, ...]
    workers: tuple[WorkerReading, ...]


@dataclass(frozen=True, slots=True)
class Reached:
    """Whether the scheduler's port could be reached; `error` is "" when it could."""

    host: str
    port: int
    error: str


@dataclass(frozen=True, slots=True)
class NurseryReady:
    """The nursery has imported what workers need."""

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
    """stopped, crashed, memory-limit, oom-killer, cuda-error, import-error, signal."""
    reason: str
    """In words, with what to do where that is known."""
    exit_code: int | None
    signal: int | None
    log_tail: tuple[str, ...]
    restart_in_s: float | None
    """When it will be started again; None when it will not."""
    parked: bool
    """Whether it failed five times in a row and waits for `RestartWorkers`."""


@dataclass(frozen=True, slots=True)
class LogLines:
    """Lines that workers printed, oldest first; also what a face gets."""

    worker: str
    lines: tuple[str, ...]
    at: float
    dropped: int = 0
    """Lines left out before these because they came too fast."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something a person should know of a host, not tied to a worker."""

    text: str


# Head → scheduler child


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
class StopScheduler:
    """Close the scheduler and end."""


# Scheduler child → head


@dataclass(frozen=True, slots=True)
class SchedulerStarted:
    """The scheduler listens."""

    pid: int
    port: int
    dashboard: str = ""


@dataclass(frozen=True, slots=True)
class WorkerCounts:
    """What the scheduler knows of one worker."""

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


@dataclass(frozen=True, slots=True)
class Counts:
    """The scheduler's counts, once a second unless its loop is busy."""

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
    """Which of the named workers gave up what they held and went; the others could not."""

    request: int
    names: tuple[str, ...]
    error: str = ""


# Whoever starts a head → head


@dataclass(frozen=True, slots=True)
class ConfigureHead:
    """The head's first line on stdin; it answers with one line on stdout, `Opened` or `Refused`."""

    version: int
    name: str
    hosts_text: str
    numbered: bool = False
    """Whether to take `NAME-2` and so on where the name is in use, rather than refuse."""
    cluster_id: str = ""
    """What its processes carry as GPUTUI_CLUSTER; whoever starts the head makes it."""
    hosts_source: str = ""
    """The absolute path of the hosts file, or ""."""
    workers: int | None = None
    """How many are wanted; None is as many as the hosts give."""
    stays: bool = False
    """Whether the cluster outlives its starter; else it ends with the head's stdin."""
    interactive: bool = False
    """Whether a person's screen is about to attach: questions then wait for it."""
    idle_timeout_s: float | None = None
    """End when nobody was attached and nothing ran for so long; None is never."""
    lease_s: float = 10.0
    """How long workers live on without word of the head; pings go out five times as often."""
    stage_timeout_s: float = 10.0
    busy: str = "warn"
    """What to do about a GPU that somebody else uses: warn, skip or refuse."""
    cpu_fallback: bool = False
    """Whether a host without a GPU may run CPU workers though nobody wrote `gpus=none`."""
    scheduler_host: str | None = None
    """Where hosts reach this machine; None is the local end of each SSH connection."""
    scheduler_port: int = 0
    dashboard_address: str = ""
    """Where to serve Dask's dashboard, loopback only; "" for no HTTP server at all."""
    ssh_config: str | None = None
    dask_config_json: str = "{}"
    """Dask settings for scheduler, workers and clients, over those chosen for GPU work."""


@dataclass(frozen=True, slots=True)
class Opened:
    """The head's door is open at this socket."""

    socket: str


# Face → head; every request is answered by `Done`, `Previewed`, `Settled` or `Refused`


@dataclass(frozen=True, slots=True)
class Attach:
    """A face's first message; answered by `Attached`."""

    version: int
    face: str
    """screen, run, python or command."""
    snapshots: bool = False
    """Whether to send `SnapshotTaken`, `EventHappened` and `Asked`."""


@dataclass(frozen=True, slots=True)
class AwaitWorkers:
    """Answer with `Settled` once this many workers are up (None: all wanted), or no more will."""

    request: int
    workers: int | None = None


@dataclass(frozen=True, slots=True)
class Scale:
    """Want this many workers (None: as many as the hosts give), on these hosts or all."""

    request: int
    workers: int | None
    host: str | None = None
    preview: bool = False
    """Answer with `Previewed` and change nothing."""


@dataclass(frozen=True, slots=True)
class RetireWorkers:
    """Retire these workers by name, moving what they hold first."""

    request: int
    names: tuple[str, ...]
    preview: bool = False


@dataclass(frozen=True, slots=True)
class AddWorkers:
    """Start workers on these devices (`host:gpu0` names) that have none."""

    request: int
    names: tuple[str, ...]
    preview: bool = False


@dataclass(frozen=True, slots=True)
class Restart:
    """Restart workers by name, those of a host by the host's name, or all with none named."""

    request: int
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Adapt:
    """Let the number of workers follow the work between bounds, or stop that."""

    request: int
    minimum: int
    maximum: int
    on: bool = True


@dataclass(frozen=True, slots=True)
class ChangeHosts:
    """Add the hosts of this hosts text, remove those named; `replace` makes the text the whole."""

    request: int
    text: str = ""
    remove: tuple[str, ...] = ()
    replace: bool = False
    preview: bool = False


@dataclass(frozen=True, slots=True)
class RetryHosts:
    """Try refused hosts again; all of them with none named."""

    request: int
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StartRun:
    """Start a preset as a headless command attached to this cluster."""

    request: int
    preset: str
    parameters: tuple[tuple[str, str], ...]
    backend: str = "auto"


@dataclass(frozen=True, slots=True)
class CancelRun:
    """Cancel a run, whoever started it."""

    request: int
    id: str


@dataclass(frozen=True, slots=True)
class ReportRun:
    """A `--run` tells how its run goes; the head keeps and shows it."""

    id: str
    preset: str
    parameters: tuple[tuple[str, str], ...]
    state: str
    started_at: float
    stage: str = ""
    done: int = 0
    total: int = 0
    summary: str = ""
    result_json: str = ""
    error_type: str = ""


@dataclass(frozen=True, slots=True)
class SubscribeLogs:
    """Send this face `LogLines`, or stop."""

    on: bool


@dataclass(frozen=True, slots=True)
class Answer:
    """A person's answer to `Asked`; None for no."""

    question: int
    text: str | None


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop the cluster; the head closes the link when everything is gone."""

    request: int


# Head → face


@dataclass(frozen=True, slots=True)
class Attached:
    """What a face needs: the cluster's identity, its address and the TLS material for `Client`."""

    version: int
    name: str
    cluster_id: str
    pid: int
    address: str
    """`tls://host:port`, "" while the scheduler starts (then `SchedulerReady` follows)."""
    certificate_pem: str
    key_pem: str
    hosts_source: str
    """The absolute path of the hosts file, or ""."""
    started_at: float
    dask_config_json: str = "{}"


@dataclass(frozen=True, slots=True)
class SchedulerReady:
    """The scheduler listens at this address; sent when it starts and when it was replaced."""

    address: str


@dataclass(frozen=True, slots=True)
class SnapshotTaken:
    """The cluster at this moment; sent once a second, and at once when a state changes."""

    snapshot: Snapshot


@dataclass(frozen=True, slots=True)
class EventHappened:
    """One event; after `Attached` those kept come first."""

    event: Event


@dataclass(frozen=True, slots=True)
class Asked:
    """A question for a person: a host key, a password, a passphrase."""

    question: int
    host: str
    kind: str
    """host-key, password, passphrase."""
    text: str
    secret: bool
    withdrawn: bool = False
    """Another face answered, or it no longer matters."""


@dataclass(frozen=True, slots=True)
class Previewed:
    """What a change would do."""

    request: int
    starts: tuple[str, ...]
    """Worker names."""
    stops: tuple[str, ...]
    text: str
    """In words: what moves, what is lost, what cannot be done."""


@dataclass(frozen=True, slots=True)
class Settled:
    """The workers that are up, and what failed on the way: refused hosts, parked workers."""

    request: int
    workers: tuple[str, ...]
    failed_hosts: tuple[HostStatus, ...]
    failed_workers: tuple[WorkerStatus, ...]


@dataclass(frozen=True, slots=True)
class Done:
    """A request was carried out; `text` says what came of it."""

    request: int
    text: str = ""


@dataclass(frozen=True, slots=True)
class Refused:
    """A request was not carried out, or (request 0) the face is turned away."""

    request: int
    reason: str


@dataclass(frozen=True, slots=True)
class Cancelled:
    """Somebody cancelled the run that this face reports."""

    id: str


@dataclass(frozen=True, slots=True)
class Stopping:
    """The cluster begins to end, and why; what runs on it need not be waited for."""

    reason: str


@dataclass(frozen=True, slots=True)
class Stopped:
    """The cluster has ended; nothing is left of it. The last message."""

    reason: str
    failed: bool = False


Message = Any
"""Any of the dataclasses above."""


def encode(message: Message) -> bytes:
    """Return the message as one line, newline included."""
    kind: Any = type(message)
    return (
        json.dumps([kind.__name__, *_encoder(kind)(message)], separators=(",", ":")) + "\n"
    ).encode()


def decode(line: bytes) -> Message:
    r"""Return the message that a line holds.

    Raises ProtocolError when it is no message of this version.

    >>> decode(encode(Ping(7)))
    Ping(number=7)
    >>> decode(b'["Nonsense", 1]\n')
    Traceback (most recent call last):
    gputui.errors.ProtocolError: not a message of this version: ["Nonsense", 1]
    """
    try:
        name, *values = json.loads(line)
        return _decoder(_KINDS[name])(values)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        shown = line[:80].decode("utf-8", "replace").strip()
        raise ProtocolError(f"not a message of this version: {shown}") from error


Encoder = Callable[[Any], list[Any]]
Decoder = Callable[[Any], Any]


@cache
def _encoder(kind: Any) -> Encoder:
    """Return a function from a value of this dataclass to the list of its fields."""
    names = [field.name for field in fields(kind)]
    hints = typing.get_type_hints(kind)
    nested = [(i, convert) for i, name in enumerate(names) if (convert := _outward(hints[name]))]
    if not names:
        return lambda value: []
    get = attrgetter(*names) if len(names) > 1 else None
    first = names[0]

    def encode_fields(value: Any) -> list[Any]:
        row = list(get(value)) if get else [getattr(value, first)]
        for i, convert in nested:
            if row[i] is not None:
                row[i] = convert(row[i])
        return row

    return encode_fields


def _outward(hint: Any) -> Callable[[Any], Any] | None:
    """Return how a field of this type is made JSON, None where it already is."""
    hint = _without_none(hint)
    if is_dataclass(hint) and isinstance(hint, type):
        return _encoder(hint)
    if typing.get_origin(hint) is tuple:
        inner = typing.get_args(hint)[0]
        if is_dataclass(inner) and isinstance(inner, type):
            convert = _encoder(inner)
            return lambda values: [convert(value) for value in values]
    return None


@cache
def _decoder(kind: Any) -> Decoder:
    """Return a function from the list of its fields to a value of this dataclass."""
    names = [field.name for field in fields(kind)]
    hints = typing.get_type_hints(kind)
    nested = [(i, convert) for i, name in enumerate(names) if (convert := _inward(hints[name]))]

    def decode_fields(values: list[Any]) -> Any:
        if len(values) != len(names):
            raise ValueError(f"{kind.__name__} has {len(names)} fields, not {len(values)}")
        for i, convert in nested:
            if values[i] is not None:
                values[i] = convert(values[i])
        return kind(*values)

    return decode_fields


def _inward(hint: Any) -> Decoder | None:
    """Return how a field of this type is made from JSON, None where it already is."""
    hint = _without_none(hint)
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return {member.value: member for member in hint}.__getitem__
    if is_dataclass(hint) and isinstance(hint, type):
        return _decoder(hint)
    if typing.get_origin(hint) is tuple:
        inner = _inward(typing.get_args(hint)[0]) if typing.get_args(hint)[-1] is ... else None
        if inner is None:
            return tuple
        return lambda values: tuple([inner(value) for value in values])
    return None


def _without_none(hint: Any) -> Any:
    """Return X for X | None."""
    if isinstance(hint, types.UnionType):
        rest = [part for part in typing.get_args(hint) if part is not type(None)]
        if len(rest) == 1:
            return rest[0]
    return hint


_KINDS: dict[str, type] = {
    name: value
    for name, value in list(globals().items())
    if isinstance(value, type) and is_dataclass(value) and value.__module__ == __name__
}
