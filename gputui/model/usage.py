"""What a run took, and how it failed: values that are handed on whole. Pure.

A figure that nobody could read is None.
"""

import traceback
from dataclasses import replace
from enum import StrEnum

from gputui.model.bounds import (
    Bytes,
    Document,
    Fleet,
    Line,
    Many,
    Name,
    Number,
    Percent,
    Seconds,
    Some,
    SumOfSeconds,
    WattHours,
)
from gputui.model.frozen import frozen


class Way(StrEnum):
    """The ways of a value from worker to worker."""

    CONNECTION = "TLS"
    """As bytes over Dask's comm."""
    MEMORY_FILE = "shared memory"
    DEVICE = "CUDA IPC"
    """By a handle: over NVLink or PCIe, or within a GPU."""


Moved = Some[tuple[Way, Bytes]]
"""Bytes by the way that they went."""


class Idle(StrEnum):
    """Why a GPU did nothing, as far as its workers and the scheduler tell."""

    NO_WORK = "no work"
    DATA = "waiting for data"
    TASKS = "waiting for other tasks"
    SCHEDULER = "waiting for the scheduler"
    CPU = "a task computed on the CPU"
    PAUSED = "its worker was paused"
    NO_WORKER = "no worker was up"
    UNKNOWN = "not known"


@frozen
class DeviceUsage:
    """One GPU during a run."""

    name: Name
    """`host:gpu0`."""
    uuid: Name
    memory_peak_bytes: Bytes | None = None
    memory_mean_bytes: Bytes | None = None
    utilization_percent: Percent | None = None
    """The mean."""
    energy_wh: WattHours | None = None
    idle_s: Seconds = 0.0
    idle_why: Some[tuple[Idle, Seconds]] = ()
    """The longest first."""


@frozen
class PrefixUsage:
    """All tasks of one prefix during a run."""

    prefix: Line
    tasks: Number
    compute_s: SumOfSeconds
    transfer_s: SumOfSeconds


@frozen
class Usage:
    """A run as a whole."""

    watched_s: Seconds
    """How long readings came."""
    gpus: Number = 0
    gpu_hours: SumOfSeconds = 0.0
    energy_wh: WattHours | None = None
    utilization_percent: Percent | None = None
    """The mean of all its GPUs."""
    device_memory_peak_bytes: Bytes | None = None
    """The most on one GPU."""
    device_memory_mean_bytes: Bytes | None = None
    """On one GPU."""
    host_memory_peak_bytes: Bytes | None = None
    """Of all its workers together."""
    host_memory_mean_bytes: Bytes | None = None
    moved: Moved = ()
    """That its workers sent each other."""
    nvlink_bytes: Bytes | None = None
    """That its GPUs sent each other over NVLink."""
    network_bytes: Bytes | None = None
    """That its hosts received from other machines."""
    idle_s: SumOfSeconds = 0.0
    """Of all its GPUs."""
    idle_why: Some[tuple[Idle, SumOfSeconds]] = ()
    slowest: Some[PrefixUsage] = ()
    """The prefixes that computed longest."""
    devices: Fleet[DeviceUsage] = ()


MOST_FRAMES = 200
"""Lines of a traceback; the last ones."""
LONGEST_LINE = 1_000
MOST_SHOWN = 2**14
"""Characters of a message in a snapshot; the record of a run has all of them."""


@frozen
class Failure:
    """A failure with its evidence."""

    type: Name
    """The error's class."""
    message: Document
    hint: Document = ""
    traceback: Many[Document] = ()
    worker: Name = ""
    """The worker that explains it most; "" for none."""
    worker_log: Many[Document] = ()
    """How that worker ended, and its last log lines."""

    @property
    def text(self) -> str:
        r"""The message, and the hint below it.

        >>> Failure("RunError", "too large", "use less").text
        'too large\n  use less'
        """
        return self.message + (f"\n  {self.hint}" if self.hint else "")

    @property
    def shown(self) -> "Failure":
        """The failure as a snapshot has it: a message may hold all of an array."""
        if len(self.message) <= MOST_SHOWN:
            return self
        return replace(self, message=f"{self.message[:MOST_SHOWN]} …")


def frames(error: BaseException | None) -> tuple[str, ...]:
    """Return where an error was raised, without the lines that point at parts of others."""
    if error is None:
        return ()
    lines = "".join(traceback.format_exception(error)).splitlines()
    kept = [line[:LONGEST_LINE] for line in lines if not line.strip() or line.strip(" ~^")]
    return tuple(kept[-MOST_FRAMES:])
