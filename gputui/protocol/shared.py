"""Messages of more than one channel, and how every message waits while its peer reads slowly.

Each class of message says how; one without a `delivery` of its own is state.
"""

import signal
from dataclasses import field
from enum import Enum, auto
from typing import ClassVar

from gputui.model.bounds import (
    Document,
    Line,
    Many,
    Moment,
    Name,
    Number,
    Pid,
)
from gputui.model.frozen import frozen
from gputui.model.plain_text import many

ASK_SIGNAL = signal.SIGRTMIN + 12
"""Has a worker's Python report its stacks."""
DUMP_SIGNAL = signal.SIGRTMIN + 13
"""Has `faulthandler` write the frames of a worker, or of a scheduler, whose Python does not run."""


class Delivery(Enum):
    """How a message that waits may be treated."""

    STATE = auto()
    """Never left out. A peer that lets too many of them wait is hung up on."""
    LATEST = auto()
    """Takes the place of one of its class that waits, or of its class and `delivery_key`."""
    FLOOD = auto()
    """Past a bound the oldest are left out, and counted in the next of the same worker."""


@frozen
class Numbered:
    """A request, or its answer, which has the same number; its sender fills it in."""

    request: Number


@frozen
class Credentials:
    """What joins a cluster: TLS material (PEM text), and Dask's configuration (JSON)."""

    certificate_pem: Document
    key_pem: Document
    dask_config_json: Document


@frozen
class RunningCluster:
    """What a cluster says of itself, in its connection file and to frontends."""

    name: Name
    cluster_id: Name
    pid: Pid
    """Of its head."""
    started_at: Moment
    hosts_source: Line = field(default="", kw_only=True)
    """The absolute path of its hosts file, or ""."""
    address: Name = field(default="", kw_only=True)
    """`tls://host:port` of the scheduler, "" before it listens."""


@frozen
class LogLines:
    """Lines that workers printed, oldest first: from an agent, then to a frontend."""

    delivery: ClassVar[Delivery] = Delivery.FLOOD

    worker: Name
    lines: Many[Line]
    at: Moment
    dropped: Number = 0
    """Lines left out before these because they came too fast."""
    earlier: bool = False
    """Whether they were printed before this frontend, or any, wanted them; `at` may be too late."""

    @property
    def left_out(self) -> tuple[str, ...]:
        """The line that stands for those left out, where any were."""
        said = f"[{many(self.dropped, 'line')} left out: too many came at once]"
        return (said,) if self.dropped else ()


@frozen
class FollowLogs:
    """Send `LogLines`, an agent those that its workers printed last first; or stop."""

    on: bool


@frozen
class Refused(Numbered):
    """A request was not carried out, or (request 0) the frontend is turned away."""

    reason: Document
