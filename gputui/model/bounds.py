"""The bounds of every field of a message, in its type: how large a number, how long a text.

`Annotated` carries them, from the standard library: whatever decodes a peer's message refuses a
value out of bounds, and an agent brings its own within them as it sends (`protocol.codec`).
"""

from typing import Annotated, NamedTuple, TypeVar

Item = TypeVar("Item")


class Bounds(NamedTuple):
    """The least and most of a number."""

    least: float
    most: float


class Length(NamedTuple):
    """The most characters of a text, or items of a tuple."""

    most: int


# Numbers
Number = Annotated[int, Bounds(0, 2**53)]
"""A counter or a sequence number; nothing is allocated by it."""
Pid = Annotated[int, Bounds(0, 2**22)]
"""Source: proc_sys_kernel(5), pid_max."""
Port = Annotated[int, Bounds(0, 65_535)]
Cpus = Annotated[int, Bounds(0, 4_096)]
MOST_WORKERS = 1_000_000
"""Of one cluster."""
WorkerNumber = Annotated[int, Bounds(0, MOST_WORKERS)]
"""How many workers a cluster has, or is to have."""
SignedNumber = Annotated[int, Bounds(-(2**53), 2**53)]
"""A number that a user wrote: validated later, with a message."""
Restarts = Annotated[int, Bounds(0, 1_000_000)]
SmallNumber = Annotated[int, Bounds(0, 100_000)]
ExitStatus = Annotated[int, Bounds(-1_000, 100_000)]
Bytes = Annotated[int, Bounds(0, 2**60)]
BytesPerSecond = Annotated[float, Bounds(0, 1e15)]
Percent = Annotated[float, Bounds(0, 100)]
CpuPercent = Annotated[float, Bounds(0, 1e7)]
"""Of one CPU."""
Share = Annotated[float, Bounds(0, 1)]
Load = Annotated[float, Bounds(0, 1e7)]
Celsius = Annotated[float, Bounds(-100, 1_000)]
Watts = Annotated[float, Bounds(0, 100_000)]
Joules = Annotated[float, Bounds(0, 1e15)]
WattHours = Annotated[float, Bounds(0, 1e12)]
Megahertz = Annotated[float, Bounds(0, 100_000)]
Seconds = Annotated[float, Bounds(0, 1e9)]
SumOfSeconds = Annotated[float, Bounds(0, 1e15)]
"""Of all workers together."""
LAST_MOMENT = 253_370_764_800.0
"""The year 9999, the last that date libraries represent."""
Moment = Annotated[float, Bounds(0, LAST_MOMENT)]
"""Seconds since the epoch."""

# Texts
Name = Annotated[str, Length(512)]
"""A name, a version, an identifier, an address."""
Line = Annotated[str, Length(8_192)]
"""A line that a process printed, a path, an option."""
Text = Annotated[str, Length(16_384)]
"""What happened, and why."""
Reason = Annotated[str, Length(1_024)]
"""The same, where a head keeps it of each of a host's workers."""
Document = Annotated[str, Length(2**24)]
"""A file's content: bounded by the line that holds it."""

# Tuples
Few = Annotated[tuple[Item, ...], Length(128)]
Some = Annotated[tuple[Item, ...], Length(1_024)]
Many = Annotated[tuple[Item, ...], Length(10_000)]
Fleet = Annotated[tuple[Item, ...], Length(1_000_000)]
"""Of a whole cluster: bounded by the line that holds it."""
Devices = Annotated[tuple[Item, ...], Length(512)]
"""Of one host: more than any machine has, with every MIG instance."""
Options = Many[tuple[Line, Document]]
"""Names, each with a value."""

# What a head keeps of one host
REASON_CHARS = 4_000
LAST_LINES = 20
LAST_LINE_CHARS = 4_000
"""Of why a host fails, of the hint, and of the lines that it printed before."""
KEPT_BYTES = {
    "facts": 2**20,
    "telemetry": 2**20,
    "events": 2**19,
    "log lines": 2**21,
    "reasons of its workers": 512 * 1_024,
    "reason, hint, last lines": 2 * REASON_CHARS + LAST_LINES * LAST_LINE_CHARS,
    "readings of the last hour": 1_000 * 480 * 12,
}
"""All that a host can make a head keep, by what it is: bytes as they came, of the newest alone.

Whatever a host says, for however long, a head grows by no more than the sum, times what Python
takes for a byte of it. The first two are the longest line (`protocol.channel`).
"""
