"""What is kept of readings over time: the metrics, how long, and the row of each thing read.

A row has a value for each `Metric`, None where there is no reading. Pure, and without NumPy, which
`gputui.model.history` keeps the rows with.
"""

import math
from base64 import b64decode
from enum import Enum, IntEnum

from gputui.model.bounds import Document, Many, Moment, Name, Number
from gputui.model.frozen import frozen
from gputui.model.readings import DeviceReading, HostReading
from gputui.model.snapshot import WorkerStatus

FINE_S, FINE_ROWS = 1.0, 120
"""Two minutes, a row a second."""
COARSE_S, COARSE_ROWS = 10.0, 360
"""An hour, each row the mean of ten seconds."""
MEAN_OF = int(COARSE_S / FINE_S)
MOVES_EVERY_S = 2
"""The least time between two moves of a graph."""
MB = 1e6


class Metric(IntEnum):
    """The metrics of a row, in its order. A host's utilization is its CPUs'."""

    UTILIZATION = 0
    MEMORY = 1
    """In percent."""
    POWER = 2
    TEMPERATURE = 3
    NETWORK = 4
    """Of a host, in MB/s."""
    TASKS = 5
    """Of a CPU worker: those that run, and those that are ready to."""


ROW_BYTES = 2 * len(Metric)
Row = tuple[float | None, ...]
NOTHING: Row = (None,) * len(Metric)


@frozen
class HistoryTaken:
    """Earlier readings of a host and what is on it; a screen gets one for each host.

    Later rows are for the screen to add, from its snapshots.
    `values` are float16 in base64, NaN where nothing was read: (rows, keys, metrics), the fine rows
    first, the oldest of each first.
    """

    host: Name
    keys: Many[Name]
    """The host by its name, its devices by UUID, and its CPU workers by name."""
    fine_at: Moment
    """When the newest fine row was read, by the head's clock; one each `FINE_S`."""
    fine_rows: Number
    coarse_at: Moment
    """When the newest coarse row ended: the mean of `COARSE_S`; 0 without any."""
    coarse_rows: Number
    values: Document

    def __post_init__(self) -> None:
        """Refuse values that are not so many rows."""
        size = (self.fine_rows + self.coarse_rows) * len(self.keys) * ROW_BYTES
        if len(b64decode(self.values, validate=True)) != size:
            raise ValueError(f"the history of {self.host} is not {size} bytes")


class Span(Enum):
    """A graph's span: at least so many readings, and the seconds between them."""

    MINUTES_2 = ("2 min", FINE_ROWS, 1)
    MINUTES_10 = ("10 min", 60, MEAN_OF)
    HOUR = ("1 h", COARSE_ROWS, MEAN_OF)

    def __init__(self, title: str, readings: int, reading_s: int) -> None:
        self.title, self.readings, self.reading_s = title, readings, reading_s

    @property
    def seconds(self) -> int:
        """Its length at least."""
        return self.readings * self.reading_s

    def step(self, dots: int) -> int:
        """Return how many readings go into one of so many dots.

        >>> Span.MINUTES_2.step(74), Span.HOUR.step(100), Span.MINUTES_2.step(500)
        (2, 4, 1)
        """
        return max(1, math.ceil(self.readings / max(1, dots)))

    def steps(self, step: int) -> int:
        """Return how many steps of so many readings it has."""
        return math.ceil(self.readings / step)

    def moves_after(self, step: int) -> int:
        """Return after how many readings a graph of such steps moves."""
        return step * math.ceil(MOVES_EVERY_S / (step * self.reading_s))

    @property
    def next(self) -> "Span":
        """The span after this one, the first after the last."""
        spans = list(Span)
        return spans[(spans.index(self) + 1) % len(spans)]


def of_device(device: DeviceReading) -> Row:
    """Return the row of a GPU; nothing where its readings are old ones.

    >>> of_device(DeviceReading("GPU-a", "0", "H200", 80, 20, 99.5, 61.0, 650.25))
    (99.5, 25.0, 650.25, 61.0, None, None)
    """
    if device.lost or device.stale:
        return NOTHING
    memory = percent(device.memory_used_bytes, device.memory_total_bytes)
    return device.utilization_percent, memory, device.power_w, device.temperature_c, None, None


def of_host(reading: HostReading) -> Row:
    """Return the row of a host.

    >>> of_host(HostReading(12.5, network_receive_bytes_per_s=3e6, network_send_bytes_per_s=1e6))
    (12.5, None, None, None, 4.0, None)
    """
    memory = percent(reading.memory_used_bytes, reading.memory_total_bytes)
    network = reading.network_bytes_per_s
    return reading.cpu_percent, memory, None, None, None if network is None else network / MB, None


def of_worker(worker: WorkerStatus) -> Row:
    """Return the row of a CPU worker; its utilization is that of its threads."""
    memory = percent(worker.rss_bytes, worker.memory_limit_bytes)
    return worker.threads_percent, memory, None, None, None, worker.tasks


def percent(used: float | None, total: float | None) -> float | None:
    """Return a share in percent, None where one of them is not known."""
    return 100.0 * used / total if used is not None and total else None
