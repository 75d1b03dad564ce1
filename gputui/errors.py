"""The error tree and the exit codes; every message says where, what, and how to fix it.

GputuiError
 +-- UsageError            wrong hosts, preset or parameter (exit 2)
 |    +-- HostsError       every bad line of a hosts file at once
 |    +-- PresetError      unknown preset, unknown or out-of-range parameter
 +-- ClusterError          no cluster to run it on (exit 3)
 |    +-- HostError        one host could not be used; evidence as attributes
 |    +-- ClusterTimeoutError  it, or its workers, were not up in time (a TimeoutError, too)
 |    +-- HeadError        the head died, refused, or has another protocol version
 |         +-- StoppedError  the cluster was stopped
 |         +-- OtherVersionError  its head has another protocol version
 |    +-- FolderError      this user has no folder for sockets, packs or claims
 +-- RunError              the computation failed (exit 1)
 |    +-- RunCancelledError  it was cancelled (gputui.presets.job)
 +-- ProtocolError         a line on a channel that is not a message of this version
 +-- DevicesError          the GPUs of a host cannot be seen: why, and the hint
      +-- DeviceLostError  one is gone until it is reset (gputui.agent.gpu.nvml)
"""

from enum import IntEnum
from typing import TYPE_CHECKING

from gputui.model.bounds import LAST_LINE_CHARS, LAST_LINES, REASON_CHARS
from gputui.model.plain_text import cut, safe

if TYPE_CHECKING:
    from gputui.model.usage import Failure


class ExitCode(IntEnum):
    """The command's exit statuses."""

    DONE = 0
    COMPUTATION_FAILED = 1
    WRONG_USAGE = 2
    NO_CLUSTER = 3
    INTERRUPTED = 130


class GputuiError(Exception):
    """Base of gputui's errors; `exit_code` is the exit code of the command line."""

    exit_code = ExitCode.COMPUTATION_FAILED
    hint = ""
    """How to fix it, where that is not in the message; `str` has it on a line below."""
    traceback: tuple[str, ...] = ()
    """Of another process, where it was raised there."""

    @property
    def message(self) -> str:
        """What happened, without the hint."""
        return super().__str__()

    def __str__(self) -> str:
        return self.message + (f"\n  {self.hint}" if self.hint else "")

    def failure(self, worker: str = "", worker_log: tuple[str, ...] = ()) -> "Failure":
        """Return the error as a run's record, its cluster and the screen have it."""
        from gputui.model.usage import Failure, frames

        trace = self.traceback or frames(self.__cause__)
        return Failure(type(self).__name__, self.message, self.hint, trace, worker, worker_log)


class UsageError(GputuiError):
    """The command was given something that cannot be used."""

    exit_code = ExitCode.WRONG_USAGE


def refuse(*wrong: tuple[object, str]) -> None:
    """Raise UsageError with the text of the first of these that is so."""
    for is_so, text in wrong:
        if is_so:
            raise UsageError(text)


class HostsError(UsageError):
    """A hosts file with mistakes; `problems` holds one line for each, with its line number."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        self.problems = tuple(map(safe, problems))
        super().__init__("\n".join(self.problems))


class PresetError(UsageError):
    """An unknown preset, or a parameter that is unknown, of the wrong type or out of bounds."""


class ClusterError(GputuiError):
    """There is no cluster to work on."""

    exit_code = ExitCode.NO_CLUSTER


class HostError(ClusterError):
    """A host that cannot be used, with the evidence; texts of the host are without terminal codes.

    `stage` is the `HostState` it failed in, `hint` how to fix it (or ""). A
    `transient` one may pass by itself: a host that was ready before is then tried again.
    """

    def __init__(
        self,
        host: str,
        stage: str,
        reason: str,
        *,
        hint: str = "",
        stderr_tail: tuple[str, ...] = (),
        transient: bool = False,
    ) -> None:
        reason, hint = safe(cut(reason, REASON_CHARS)), safe(cut(hint, REASON_CHARS))
        super().__init__(f"{host}: {reason}")
        self.host = host
        self.stage = stage
        self.reason = reason
        self.hint = hint
        last = stderr_tail[-LAST_LINES:]
        self.stderr_tail = tuple([safe(cut(line, LAST_LINE_CHARS)) for line in last])
        self.transient = transient


class ClusterTimeoutError(ClusterError, TimeoutError):
    """A cluster, or its workers, were not up in time."""


class HeadError(ClusterError):
    """The head of a cluster died, refused, or has another protocol version."""


class FolderError(ClusterError):
    """There is no folder of this user's own to keep sockets or files in; names those tried."""


class StoppedError(HeadError):
    """The cluster was stopped, by a frontend or by a client of its scheduler."""


class OtherVersionError(HeadError):
    """A head with another protocol version: it can be listed and stopped, not attached to."""


class RunError(GputuiError):
    """The computation itself failed; `hint` says what to change, where that is known.

    `lost` where its tasks were lost rather than failed: then the cluster may be gone, too.
    `worker` is the one it failed on, `killed` where a task took that along: the head knows how.
    """

    def __init__(
        self,
        message: str,
        *,
        hint: str = "",
        lost: bool = False,
        traceback: tuple[str, ...] = (),
        worker: str = "",
        killed: bool = False,
    ) -> None:
        super().__init__(message)
        self.hint = hint
        self.traceback = traceback
        self.lost = lost
        self.worker = worker
        self.killed = killed


class ProtocolError(GputuiError):
    """A line on a channel that is not a message of this version."""


class DevicesError(GputuiError):
    """NVML could not be opened on a host; the message says why and how to fix it."""
