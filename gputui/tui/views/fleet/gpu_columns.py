"""The columns of the fleet's GPU rows: what each shows of a slot, and how it sorts.

State, utilisation, memory, power and temperature are always there; CPU workers among themselves
have those that say something of them. Pure: values in, parts out.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from gputui.model.slots import PLACES, Slot
from gputui.tui.rendering import format as fmt
from gputui.tui.rendering.columns import Cell, Column, SortValue
from gputui.tui.rendering.gauges import gauge
from gputui.tui.rendering.lines import Line

HOT_C = 85.0
MEMORY_ALARM = 0.95
STATE, TASK, HISTORY = "state", "task", "history"
"""Columns that `GpuRows` fills: they need the present moment, the alarms, the histories."""
GENEROUS_HISTORY = 37
"""Cells of history from which on bars grow, and columns that are less asked for come in."""


def reading(slot: Slot, name: str) -> float | None:
    """Return a reading of a slot's device, None where it has none."""
    value: float | None = None if slot.device is None else getattr(slot.device, name)
    return value


def share(value: float | None, of: float | None) -> float | None:
    """Return one number as a fraction of another, None where either is missing.

    >>> share(3, 4), share(None, 4), share(3, 0)
    (0.75, None, None)
    """
    return None if value is None or not of else value / of


def _blank(_slot: Slot, width: int) -> Line:
    return [(" " * width, "")]


def utilization_share(slot: Slot) -> float | None:
    """Return how busy a device is; a CPU worker's CPU as a share of what its threads can use."""
    if slot.device is not None:
        return share(slot.device.utilization_percent, 100)
    threads = sum(worker.nthreads for worker in slot.workers)
    return share(slot.total("cpu_percent"), 100 * threads)


def _utilization(slot: Slot, width: int) -> Line:
    percent = slot.device.utilization_percent if slot.device else slot.total("cpu_percent")
    text = fmt.MISSING if percent is None else f"{percent:.0f}%"
    return gauge(utilization_share(slot), text, width)


def memory_of(slot: Slot) -> tuple[int | None, int | None]:
    """Return the bytes of a device that are used, and all; of a CPU worker, its own and limit."""
    if slot.device is not None:
        return slot.device.memory_used_bytes, slot.device.memory_total_bytes
    return _whole(slot.total("rss_bytes")), _whole(slot.total("memory_limit_bytes"))


def memory_share(slot: Slot) -> float | None:
    """Return how full a device's memory is; of a CPU worker, its own up to its limit."""
    return share(*memory_of(slot))


def _memory(slot: Slot, width: int) -> Line:
    used, total = memory_of(slot)
    full = memory_share(slot)
    text = fmt.memory(used, total)
    if len(text) > width:
        text = fmt.size(used)
    return gauge(full, text, width, "warn" if (full or 0) > MEMORY_ALARM else "")


def _power(slot: Slot, width: int) -> Line:
    drawn, limit = reading(slot, "power_w"), reading(slot, "power_limit_w")
    text = fmt.MISSING if drawn is None else f"{drawn:.0f}W"
    if limit and width >= 12:
        text = f"{fmt.number(drawn)}/{limit:.0f}W"
    return gauge(share(drawn, limit), text, width)


def _temperature(slot: Slot, width: int) -> Line:
    value = reading(slot, "temperature_c")
    role = "warn" if value is not None and value >= HOT_C else ""
    return [(fmt.number(value).rjust(width), role)]


def _clock(slot: Slot, width: int) -> Line:
    throttled = bool(slot.device and slot.device.throttle_reasons)
    text = fmt.number(reading(slot, "sm_clock_mhz"))
    return [((text + ("▾" if throttled else "")).rjust(width), "warn" if throttled else "")]


def _ecc(slot: Slot, width: int) -> Line:
    errors = slot.device.ecc_errors if slot.device else None
    return [(fmt.count(errors).rjust(width), "bad" if errors else "dim")]


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def _of_workers(name: str, show: Callable[[float | None], str], role: str = "") -> Cell[Slot]:
    """Return a cell of a reading of a slot's workers; a zero is dim, another number in a role."""

    def cell(slot: Slot, width: int) -> Line:
        value = slot.total(name)
        return [(show(value).rjust(width), role if value else "dim")]

    return cell


def _counted(value: float | None) -> str:
    return fmt.count(_whole(value))


def _by_worker(name: str) -> Callable[[Slot], SortValue]:
    return lambda slot: slot.total(name)


def _by_device(name: str) -> Callable[[Slot], SortValue]:
    return lambda slot: reading(slot, name)


def _count_column(
    key: str, title: str, width: int, rank: int, name: str, does: str, role: str = ""
) -> Column[Slot]:
    cell = _of_workers(name, _counted, role)
    return Column(key, title, width, rank, cell, _by_worker(name), does)


COLUMNS: tuple[Column[Slot], ...] = (
    Column(
        STATE, "STATE", 12, 0, _blank, lambda s: PLACES[s.state],
        "what the worker on it does, or what is wrong", False, False, least=8,
    ),
    Column(
        "util", "UTIL", 10, 0, _utilization, utilization_share,
        "share of time in which the GPU computed; of a CPU worker, its CPU", least=6, most=22,
    ),
    Column(
        "mem", "MEM", 12, 0, _memory, memory_share,
        "GPU memory used and total; of a CPU worker, its own", least=6, most=22,
    ),
    Column(
        "power", "PWR", 8, 0, _power, _by_device("power_w"),
        "power drawn, as a share of its limit, in W", least=5, most=16,
    ),
    Column("temp", "°C", 3, 0, _temperature, _by_device("temperature_c"), "temperature in °C"),
    Column(
        "cpu", "CPU", 4, 7, _of_workers("cpu_percent", fmt.number), _by_worker("cpu_percent"),
        "CPU of its workers in percent; 100 is one core",
    ),
    _count_column("run", "RUN", 3, 2, "executing", "tasks that run on its workers"),
    _count_column("ready", "READY", 5, 3, "ready", "tasks that are ready to run on its workers"),
    _count_column("results", "RESULTS", 7, 4, "in_memory", "results that its workers hold"),
    Column(
        TASK, "TASK", 14, 1, _blank,
        lambda s: next((w.current_task for w in s.workers), None),
        "the task group that runs; in its place what is wrong", False, False, most=30,
    ),
    Column(
        HISTORY, "UTIL, 2 MIN", 14, 6, _blank,
        does="utilisation of the last minutes", right=False, rest=GENEROUS_HISTORY,
    ),
    Column(
        "rss", "RSS", 5, 8, _of_workers("rss_bytes", fmt.size), _by_worker("rss_bytes"),
        "host memory of its workers",
    ),
    Column(
        "clock", "CLOCK", 5, 9, _clock, _by_device("sm_clock_mhz"),
        "clock of its multiprocessors in MHz; ▾ is throttled",
    ),
    Column(
        "spill", "SPILL", 5, 10, _of_workers("spilled_bytes", fmt.size),
        _by_worker("spilled_bytes"),
        "what its workers wrote to disk for want of memory",
    ),
    _count_column("restarts", "RST", 3, 11, "restarts", "restarts of its workers", "warn"),
    Column("ecc", "ECC", 4, 12, _ecc, _by_device("ecc_errors"), "uncorrected memory errors"),
)  # fmt: skip
BY_KEY = {column.key: column for column in COLUMNS}


def columns_named(names: Iterable[str]) -> tuple[Column[Slot], ...]:
    """Return the columns of these names, or all columns if no name is known."""
    return tuple(BY_KEY[name] for name in dict.fromkeys(names) if name in BY_KEY) or COLUMNS


OF_GPUS = frozenset(("power", "temp", "clock", "ecc"))
"""Columns that CPU workers do not have."""
SAME = {"cpu": "util", "rss": "mem"}
"""Columns of a CPU worker that repeat another column."""


def of_cpu_workers(columns: Sequence[Column[Slot]]) -> list[Column[Slot]]:
    """Return those columns that say something of CPU workers, each thing once."""
    keys = {column.key for column in columns}
    return [
        replace(column, title=column.title.replace("UTIL", "CPU"))
        for column in columns
        if column.key not in OF_GPUS and SAME.get(column.key) not in keys
    ]
