"""Readings over time in 16 bits a value: what the head keeps of every GPU, and sends to screens.

A row holds the `METRICS` of a GPU, in their order; that of a host or of a CPU worker holds what is
closest to them. Pure.
"""

import base64
import sys
from array import array

from gputui.model.readings import DeviceReading, HostReading
from gputui.model.snapshot import WorkerStatus

METRICS = ("utilization_percent", "memory_percent", "power_w", "temperature_c")
SCALES = OF_BUSY, OF_MEMORY, OF_POWER, OF_TEMPERATURE = (100, 100, 10, 100)
"""What each metric is multiplied by: hundredths of a percent and of a degree, tenths of a watt."""
MB = 1e6
MISSING = 0xFFFF
"""In place of a reading that was not there."""
FINE_S, FINE_ROWS = 1.0, 120
"""Two minutes, a row a second."""
COARSE_S, COARSE_ROWS = 10.0, 360
"""An hour, each row the mean of ten seconds."""

Row = tuple[int, int, int, int]

NOTHING: Row = (MISSING, MISSING, MISSING, MISSING)


def of_device(device: DeviceReading) -> Row:
    """Return the row of a GPU; nothing where its readings are old ones.

    >>> of_device(DeviceReading("GPU-a", "0", "H200", 80, 20, 99.5, 61.0, 650.25))
    (9950, 2500, 6502, 6100)
    >>> of_device(DeviceReading("GPU-a", "0", "H200", 0, 20, 1e99, None, -1.0))
    (65534, 65535, 0, 65535)
    """
    if device.lost or device.stale:
        return NOTHING
    # Written out, because there are thousands each second.
    busy, power_w, temperature_c = (
        device.utilization_percent,
        device.power_w,
        device.temperature_c,
    )
    used, total = device.memory_used_bytes, device.memory_total_bytes
    a = MISSING if busy is None else int(busy * OF_BUSY)
    b = MISSING if used is None or not total else int(100 * OF_MEMORY * used / total)
    c = MISSING if power_w is None else int(power_w * OF_POWER)
    d = MISSING if temperature_c is None else int(temperature_c * OF_TEMPERATURE)
    # All bits together are out of these bounds where one of the four is.
    return (a, b, c, d) if 0 <= a | b | c | d <= MISSING else _within((a, b, c, d))


def of_host(reading: HostReading) -> Row:
    """Return the row of a host: its CPUs' utilisation, its memory, MB/s over its network.

    >>> of_host(HostReading(12.5, network_receive_bytes_per_s=3e6, network_send_bytes_per_s=1e6))
    (1250, 65535, 40, 65535)
    """
    memory = _percent(reading.memory_used_bytes, reading.memory_total_bytes)
    network = reading.network_bytes_per_s
    return (
        _scaled(reading.cpu_percent, SCALES[0]),
        _scaled(memory, SCALES[1]),
        _scaled(None if network is None else network / MB, SCALES[2]),
        MISSING,
    )


def of_worker(worker: WorkerStatus) -> Row:
    """Return the row of a CPU worker: its threads' utilisation, its memory, its tasks.

    >>> from gputui.model.snapshot import WorkerState
    >>> of_worker(WorkerStatus("h:cpu0", "h", WorkerState.BUSY, cpu_percent=150.0, nthreads=2))
    (7500, 65535, 65535, 65535)
    """
    memory = _percent(worker.rss_bytes, worker.memory_limit_bytes)
    return (
        _scaled(worker.threads_percent, SCALES[0]),
        _scaled(memory, SCALES[1]),
        _scaled(worker.tasks, SCALES[2]),
        MISSING,
    )


def values(raw: "array[int]", metric: int) -> list[float | None]:
    """Return the values of one metric as they were read.

    >>> values(array("H", [9950, MISSING]), METRICS.index("utilization_percent"))
    [99.5, None]
    """
    scale = SCALES[metric]
    return [None if value == MISSING else value / scale for value in raw]


def pack(raw: "array[int]") -> str:
    """Return values as text: base64 of little-endian 16-bit numbers.

    >>> unpack(pack(array("H", [1, 2, MISSING])))
    array('H', [1, 2, 65535])
    """
    return base64.b64encode(_little_endian(raw).tobytes()).decode("ascii")


def unpack(text: str) -> "array[int]":
    """Return the array of a text that `pack` made; raises ValueError for anything else."""
    raw = array("H")
    raw.frombytes(base64.b64decode(text, validate=True))
    return _little_endian(raw)


def _little_endian(raw: "array[int]") -> "array[int]":
    if sys.byteorder == "big":
        raw = raw[:]
        raw.byteswap()
    return raw


def _within(row: Row) -> Row:
    busy, memory, power, temperature = [
        value if value == MISSING else max(0, min(MISSING - 1, value)) for value in row
    ]
    return busy, memory, power, temperature


def _scaled(value: float | None, scale: int) -> int:
    return MISSING if value is None else max(0, min(MISSING - 1, int(value * scale)))


def _percent(used: int | None, total: int | None) -> float | None:
    return 100.0 * used / total if used is not None and total else None
