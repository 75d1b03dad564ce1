"""Frontend ↔ head: a user's or a program's requests, and what happens in a cluster.

A frontend says its version, `["Attach", 8]`, then `Attach`, and is `Attached`. A head of another
version answers `["Refused", 0, why]` and ends the connection. Every `Request`
carries a number, which its answer has, too: a `Reply`, or `Refused`.
"""

import json
import secrets
import time
from pathlib import Path
from typing import Any, ClassVar

from gputui.model.bounds import (
    Bytes,
    Document,
    Few,
    Fleet,
    Line,
    Name,
    Number,
    Options,
    SignedNumber,
    SmallNumber,
)
from gputui.model.examination import ExaminedHost, ExaminedScheduler
from gputui.model.frozen import frozen
from gputui.model.series import HistoryTaken
from gputui.model.snapshot import Event, HostStatus, RunStatus, Session, Snapshot, WorkerStatus
from gputui.protocol import VERSION
from gputui.protocol.codec import to_line
from gputui.protocol.programs import (
    EndRun,
    FromProgram,
    Placed,
    ProgramWaits,
    RunPrograms,
    ToProgram,
)
from gputui.protocol.shared import (
    Credentials,
    Delivery,
    FollowLogs,
    LogLines,
    Numbered,
    Refused,
    RunningCluster,
)


@frozen
class Attach:
    """A frontend's first message; answered by `Attached`."""

    session: Session
    """Who this is, and where; the head says when it came."""
    snapshots: bool = False
    """Whether to send `SnapshotTaken`; commands get neither `EventHappened` nor `Asked` then."""
    compressed: bool = False
    """Whether to compress what follows `Attached`."""


@frozen
class AwaitWorkers(Numbered):
    """Answer with `Settled` once this many workers are up (None: all wanted), or no more will."""

    workers: SignedNumber | None = None


@frozen
class Scale(Numbered):
    """Want this many workers; None is as many as the hosts give."""

    workers: SignedNumber | None
    preview: bool = False
    """Answer with `Previewed` and change nothing."""


@frozen
class RetireWorkers(Numbered):
    """Retire these workers by name, moving what they hold first."""

    names: Fleet[Name]
    preview: bool = False


@frozen
class AddWorkers(Numbered):
    """Start workers on these devices (`host:gpu0` names) that have none."""

    names: Fleet[Name]
    preview: bool = False


@frozen
class Restart(Numbered):
    """Restart workers by name, those of a host by the host's name, or all with none named."""

    names: Fleet[Name]


@frozen
class ChangeHosts(Numbered):
    """Add the hosts of this hosts text, and remove those named."""

    text: Document = ""
    remove: Fleet[Name] = ()
    preview: bool = False


@frozen
class RetryHosts(Numbered):
    """Try failed hosts again; all of them with none named."""

    names: Fleet[Name] = ()


RUN_VARIABLE = "GPUTUI_RUN"
"""In the environment of a run that a head started: the id that the head knows it by, and when it
was asked for."""


def new_run_id(preset: str) -> str:
    """Return the id of a run that starts now: its time, its preset, four random digits."""
    name = Path(preset.partition(":")[0]).stem
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{name}-{secrets.token_hex(2)}"


@frozen
class StartRun(Numbered):
    """Start a preset as a headless command attached to this cluster."""

    preset: Line
    parameters: Options
    backend: Name = "auto"
    cwd: Line = ""
    """Its folder, where the head's machine has that; else it is in the home folder."""


@frozen
class CancelRun(Numbered):
    """Cancel a run of any frontend."""

    id: Name


@frozen
class ReportRun:
    """A `--run` reports its run; the head keeps and shows it."""

    delivery: ClassVar[Delivery] = Delivery.LATEST

    run: RunStatus

    @property
    def delivery_key(self) -> str:
        """Each run has a latest report of its own."""
        return self.run.id


@frozen
class Answer:
    """A user's answer to `Asked`; None for no."""

    question: Number
    text: Document | None


@frozen
class KeepWatching(Numbered):
    """Have a cluster without workers outlive its last screen, as one with workers does."""


@frozen
class Examine(Numbered):
    """Have every agent examine its workers; answered by `Examined` within 3 s."""


@frozen
class ReadMetrics(Numbered):
    """Answer with the metrics as text, in `Done`."""


@frozen
class Stop(Numbered):
    """Stop the cluster; the head closes the channel when everything is gone."""


Request = (
    AwaitWorkers
    | Scale
    | RetireWorkers
    | AddWorkers
    | Restart
    | ChangeHosts
    | RetryHosts
    | StartRun
    | RunPrograms
    | CancelRun
    | KeepWatching
    | Examine
    | ReadMetrics
    | Stop
)
"""What a head carries out and answers."""

FromFrontend = Request | Attach | ReportRun | FollowLogs | Answer | ToProgram | EndRun
"""What a frontend sends."""


@frozen
class Attached(RunningCluster):
    """The first message to a frontend: the cluster, and the credentials for `Client`.

    Without an address `SchedulerReady` follows.
    """

    credentials: Credentials
    dashboard: Name = ""
    """The URL of Dask's dashboard, where one is served."""
    metrics: Name = ""
    """The URL of the metrics, where they are served."""
    python: Line = ""
    """The head's interpreter."""
    python_version: Name = ""
    """`3.11`: what clients pickle is read by this minor version only."""
    packages: Few[tuple[Name, Name]] = ()
    """Those that a Dask client must have in the same version, each with its version."""


@frozen
class SchedulerReady:
    """The scheduler listens at this address; sent when it starts and when it was replaced."""

    address: Name
    dashboard: Name = ""
    """As that of `Attached`."""


@frozen
class SnapshotTaken:
    """The cluster at this moment; sent once a second, and at once when a state changes."""

    delivery: ClassVar[Delivery] = Delivery.LATEST

    snapshot: Snapshot


@frozen
class EventHappened:
    """One event; after `Attached` those kept come first."""

    event: Event


@frozen
class Asked:
    """A question for a user: a host key, a password, a passphrase."""

    question: Number
    host: Name
    kind: Name
    """host-key, password, passphrase."""
    text: Document
    secret: bool
    withdrawn: bool = False
    """Another frontend answered, or it no longer matters."""


@frozen
class Previewed(Numbered):
    """A change's effect, before it is made."""

    starts: Fleet[Name]
    """Worker names."""
    stops: Fleet[Name]
    text: Document
    """What is moved, what is lost, and what is impossible."""


@frozen
class Settled(Numbered):
    """The workers that are up, and what failed: hosts, and workers in a crash loop."""

    workers: Fleet[Name]
    failed_hosts: Fleet[HostStatus]
    failed_workers: Fleet[WorkerStatus]
    wanted: Fleet[Name] = ()
    """The workers that are to run now, those that are not up yet among them."""
    worker_size: tuple[SmallNumber, Bytes] = (0, 0)
    """Threads of a worker, and its memory limit in bytes; 0 before any host can run one."""
    lacking: Document = ""
    """Why there are too few free GPUs, where it takes only those."""


@frozen
class Done(Numbered):
    """A request was carried out; `text` describes the outcome."""

    text: Document = ""


@frozen
class Cancelled:
    """The run that this frontend reports was cancelled."""

    id: Name


@frozen
class Stopping:
    """The cluster begins to end, and why; what runs on it need not be waited for."""

    reason: Document
    failed: bool = False


@frozen
class Stopped:
    """The cluster has ended; nothing is left of it. The last message."""

    reason: Document
    failed: bool = False


@frozen
class Examined(Numbered):
    """What was found; hosts whose agents did not answer in time are missing."""

    hosts: Fleet[ExaminedHost]
    scheduler: ExaminedScheduler
    env_values: Fleet[Line] = ()
    """Those of `env.X=` of hosts: a report is to have none of them."""


Reply = Done | Previewed | Settled | Placed | Examined
"""The answer to a request that was carried out."""

ToFrontend = (
    Attached
    | SchedulerReady
    | SnapshotTaken
    | HistoryTaken
    | EventHappened
    | Asked
    | Cancelled
    | Stopping
    | Stopped
    | LogLines
    | ProgramWaits
    | FromProgram
    | Reply
    | Refused
)
"""What a head sends."""

HELLO = to_line(["Attach", VERSION])
"""A frontend's first line, and a head's refusal of it, are alike in every version."""


def refusal(line: bytes) -> str:
    """Return why a frontend is turned away by its first line; "" when it is not.

    >>> refusal(HELLO), refusal(b"hello")
    ('', 'the first message must be Attach')
    """
    match _parsed(line):
        case ["Attach", int(version), *_]:
            if version == VERSION:
                return ""
            return (
                f"this cluster's head speaks version {VERSION} of the protocol, and this frontend "
                f"{version}: use the gputui that started the cluster, or restart the cluster"
            )
    return "the first message must be Attach"


def refused(reason: str) -> bytes:
    """Return the line that turns a frontend away.

    >>> why_refused(refused("no")), why_refused(b'["Attached",{}]')
    ('no', '')
    """
    return to_line(["Refused", 0, reason])


def why_refused(line: bytes) -> str:
    """Return why a head turns this frontend away; "" where it does not."""
    match _parsed(line):
        case ["Refused", 0, str(reason)]:
            return reason
    return ""


def _parsed(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None
