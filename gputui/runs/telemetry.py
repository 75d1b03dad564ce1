"""A run's telemetry as its file `telemetry.json` has it: its GPUs' readings and its tasks' spans.

The recorder makes it, `records` writes and reads it, traces and playback are made of it. Pure.
"""

from collections.abc import Sequence
from dataclasses import dataclass

VERSION = 1
MIB = 2**20

Row = tuple[int | None, int | None, int | None]
"""Utilisation in percent, memory in MiB, power in W."""
Span = tuple[int, int, float, float, bool]
"""A task: the numbers of its worker and prefix, when it began, its seconds, whether it failed."""


@dataclass(frozen=True, slots=True)
class DeviceTelemetry:
    """One GPU of a run."""

    name: str
    """`host:gpu0`."""
    uuid: str
    rows: Sequence[Row | None]
    """None where it was not read."""
    model: str
    memory_bytes: int | None
    """All that it has."""
    power_limit_w: float | None


@dataclass(frozen=True, slots=True)
class Telemetry:
    """The rows and spans of a run, as its file has them."""

    version: int
    step_s: float
    """The seconds of a row."""
    times: Sequence[float]
    """When each row ended; a clock that is put back is seen here."""
    devices: Sequence[DeviceTelemetry]
    names: Sequence[str]
    spans: Sequence[Span]
    one_span_of: int
    """How many tasks each span stands for."""

    def __post_init__(self) -> None:
        """Refuse rows without a time, and spans without a name."""
        whole = all(len(each.rows) == len(self.times) for each in self.devices)
        numbers = range(len(self.names))
        if not whole or not all(one in numbers and two in numbers for one, two, *_ in self.spans):
            raise ValueError("its parts do not fit together")
