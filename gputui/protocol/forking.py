"""Agent ↔ its forkserver, and worker → agent: what to fork, and what became of it.

A worker has two pipes to its agent, for what it prints and for its reports. The agent has
their reading ends only; the forkserver, of the same user, opens the others in /proc.
"""

from gputui.model.bounds import (
    Cpus,
    ExitStatus,
    Few,
    Line,
    Many,
    Name,
    Number,
    Pid,
    Port,
    SmallNumber,
    Text,
)
from gputui.model.examination import ThreadStack, Transfers
from gputui.model.frozen import frozen
from gputui.model.plan import WorkerSpec
from gputui.protocol.agent import WorkerReady
from gputui.protocol.shared import Credentials

CANNOT_LISTEN = "it cannot listen on "
"""How the last line of a worker begins that could not; another try does not help."""


@frozen
class ForkWorker:
    """Fork a worker; answered by `Forked`, and at its end by `ForkEnded`."""

    spec: WorkerSpec
    scheduler_address: Name
    listen_host: Name
    scratch: Line
    """Its folder for files."""
    lock: Line
    """A file: workers of a host make their CUDA contexts in turn."""
    cpus: Many[Cpus]
    """Those near its device; empty for any."""
    output: Number
    """The agent's descriptor of the pipe for what it prints."""
    reports: Number
    """The agent's descriptor of the pipe for its reports."""
    ports: Few[Port] = ()
    """As in `StartWorkers`."""
    contact_host: Name = ""
    """As in `StartWorkers`."""


ToForkserver = Credentials | ForkWorker
"""What an agent sends."""


@frozen
class Imported:
    """The forkserver has imported what workers need, and takes orders."""

    threads: SmallNumber
    """Threads of libraries that it then has; forking is safe without any."""


@frozen
class Forked:
    """A worker's process was forked."""

    name: Name
    pid: Pid
    start_ticks: Number
    """When, since boot: no later process of this pid has the same."""


@frozen
class ForkEnded:
    """A worker's process ended, with this status of `waitpid`."""

    name: Name
    status: ExitStatus


@frozen
class ForkFailed:
    """A worker's process could not be forked."""

    name: Name
    reason: Text


FromForkserver = Imported | Forked | ForkFailed | ForkEnded
"""What a forkserver sends."""


@frozen
class WorkerEnding:
    """A worker ends by itself; one that a task ends does not say so."""

    signal: ExitStatus = 0
    """That asked it to; 0 where it was closed, or has failed."""


FromWorker = WorkerReady | WorkerEnding | ThreadStack | Transfers
"""What a worker sends; `Transfers` ends an answer to `ASK_SIGNAL`."""
