"""The fleet's metrics and states, each in one row of a table. Pure.

A metric's row says where it is read, what it is a share of, how it is written, kept and compared.
The columns of GPUs and hosts, the heat map, the filter, the outliers, the graphs and the files that
are saved are all made from it. A state's row has its shape, word and role, each of them enough
alone.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any

from gputui.model import series
from gputui.model.alarms import MEMORY_FULL
from gputui.model.frozen import frozen
from gputui.model.slots import Slot, SlotState, state_of_worker
from gputui.model.snapshot import HostState, HostStatus, WorkerState, WorkerStatus
from gputui.tui.rendering import Line, Part, fitted, gauge
from gputui.tui.rendering import format as fmt

Number = float | None
Read = Slot | HostStatus
HOT_C, HOTTEST_C = 85.0, 100.0
OLDEST_TASK_S = 60.0
"""From which age on a last task is as old as any."""


def _memory(used: Number, total: Number, width: int) -> str:
    text = fmt.memory(used, total)
    return text if len(text) <= width else fmt.size(used)


def _power(drawn: Number, limit: Number, width: int) -> str:
    if drawn is not None and drawn >= 10_000:
        return f"{drawn / 1000:.1f}kW"
    of = f"/{limit:.0f}" if limit and width >= 12 else ""
    return fmt.MISSING if drawn is None and not of else f"{fmt.number(drawn)}{of}W"


@frozen
class Metric:
    """One reading of a slot or host; of several slots, their sum unless `over` says another."""

    key: str
    """What it is called in columns, orders and the filter."""
    title: str
    """The title of its column."""
    width: int
    rank: int = 0
    device: str = ""
    """The field of a device's reading; "" of what only workers have."""
    worker: str = ""
    """The field of a worker, for slots whose device does not have it."""
    is_moment: bool = False
    """Whether that is a moment; the reading is then how long it was before the host was read."""
    host: str = ""
    """The field of a host's reading; "" of what is read of slots."""
    whole: Callable[[Any], Number] = lambda _: None
    """What it is a share of, or its limit."""
    say: Callable[[Number], str] = fmt.number
    """Writes it with its unit."""
    write: Callable[[Number, Number, int], str] | None = None
    """Writes it into a cell so wide, where that is not what `say` returns."""
    over: Callable[[Sequence[float]], float] = sum
    least: int = 0
    most: int = 0
    """The cells to which a bar shrinks and grows; 0 is no bar."""
    by_share: bool = False
    """Whether it is sorted and filtered by its share, in percent."""
    warns_from: float = math.inf
    """The share, or the value without a bar, from which on it is amber."""
    odd: str = ""
    """The role of a number other than 0; `plain` is none, not even of 0."""
    mark: Callable[[Any], str] = lambda _: ""
    """A character behind the number, which makes it amber."""
    asked_as: str = ""
    """What the filter calls it, where that is not its key."""
    name: str = ""
    """The title of its graph and of its heat map, where it has them."""
    kept: series.Metric | None = None
    """Where its history is."""
    top: float = 0.0
    """The top of its graph; 0 is its limit."""
    ramp: tuple[float, float] | None = None
    """The ends of the heat map where these are not nothing and all."""
    ends: tuple[str, str] = ("0", "100 %")
    """What these are called in its legend."""
    spread: float = 0.0
    """The least distance from others that means anything; 0 is not compared."""

    def of(self, read: Read) -> Number:
        """Return the reading of one slot or host, None where it is missing."""
        value: Number = None
        if isinstance(read, HostStatus):
            value = getattr(read.reading, self.host)
        elif read.device is not None and self.device:
            value = getattr(read.device, self.device)
            if self.is_moment and value is not None:
                value = max(0.0, (read.host.read_at or value) - value)
        elif self.worker:
            value = read.total(self.worker)
        return value

    def _together(self, slots: Sequence[Read], read: Callable[[Any], Number]) -> Number:
        if len(slots) == 1:
            return read(slots[0])
        known = [value for slot in slots if (value := read(slot)) is not None]
        return self.over(known) if known else None

    def value(self, slots: Sequence[Read]) -> Number:
        """Return the reading of these slots together."""
        return self._together(slots, self.of)

    def share(self, slots: Sequence[Read]) -> Number:
        """Return the reading as a share of what it can be."""
        value, whole = self.value(slots), self._together(slots, self.whole)
        return None if value is None or not whole else value / whole

    def amount(self, slots: Sequence[Read]) -> Number:
        """Return the number that it is sorted and filtered by."""
        if not self.by_share:
            return self.value(slots)
        share = self.share(slots)
        return None if share is None else share * 100

    def fraction(self, slots: Sequence[Read]) -> Number:
        """Return where on the heat map's ramp slots are."""
        if self.ramp is None:
            return self.share(slots)
        (low, high), value = self.ramp, self.value(slots)
        return None if value is None else (value - low) / (high - low)

    def cell(self, slots: Sequence[Read], width: int) -> Line:
        """Return the reading in so many cells."""
        value, whole = self.value(slots), self._together(slots, self.whole)
        text = self.write(value, whole, width) if self.write else self.say(value)
        if self.most:
            share = self.share(slots)
            return gauge(share, text, width, "warn" if (share or 0) > self.warns_from else "")
        mark = "".join(set(map(self.mark, slots)))
        role = (self.odd if value else "dim") if self.odd != "plain" else ""
        if mark or (value or 0) >= self.warns_from:
            role = "warn"
        return [((text + mark).rjust(width), role)]


def _computes(slot: Slot) -> Number:
    """Return 100 for a GPU, and for each thread of CPU workers."""
    return 100.0 if slot.device else 100.0 * sum(worker.nthreads for worker in slot.workers)


UTIL, MEM, POWER, TEMP = (
    Metric(
        "util", "UTIL", 10,
        device="utilization_percent", worker="cpu_percent", whole=_computes, say=fmt.percent,
        over=fmean, least=6, most=22, by_share=True, name="UTIL",
        kept=series.Metric.UTILIZATION, top=100.0, spread=3.0,
    ),
    Metric(
        "mem", "MEM", 12,
        device="memory_used_bytes", worker="rss_bytes", say=fmt.size, write=_memory,
        whole=lambda slot: (
            slot.device.memory_total_bytes if slot.device else slot.total("memory_limit_bytes")
        ),
        least=6, most=22, by_share=True, warns_from=MEMORY_FULL, name="MEM",
        kept=series.Metric.MEMORY, top=100.0,
    ),
    Metric(
        "power", "PWR", 8, device="power_w",
        whole=lambda slot: slot.device.power_limit_w if slot.device else None, write=_power,
        say=lambda value: f"{fmt.number(value)} W",
        least=5, most=16, name="POWER", kept=series.Metric.POWER, spread=10.0, ends=("0", "limit"),
    ),
    Metric(
        "temp", "°C", 3,
        device="temperature_c", whole=lambda _: HOT_C, over=max,
        say=lambda value: f"{fmt.number(value)} °C", write=lambda value, *_: fmt.number(value),
        warns_from=HOT_C, odd="plain",
        name="TEMP", kept=series.Metric.TEMPERATURE, top=HOTTEST_C, ramp=(30.0, 90.0),
        ends=("30", "90 °C"), spread=2.0,
    ),
)  # fmt: skip
METRICS: tuple[Metric, ...] = (
    UTIL,
    MEM,
    POWER,
    TEMP,
    Metric("cpu", "CPU", 4, 7, "", "cpu_percent"),
    Metric("run", "RUN", 3, 2, "", "executing", say=fmt.count,
           asked_as="executing"),
    Metric("ready", "READY", 5, 3, "", "ready",
           say=fmt.count),
    Metric("results", "RESULTS", 7, 4, "", "in_memory",
           say=fmt.count),
    Metric("rss", "RSS", 5, 8, "", "rss_bytes", say=fmt.size),
    Metric("clock", "CLOCK", 5, 9,
           "sm_clock_mhz", odd="plain",
           mark=lambda slot: "▾" if slot.device and slot.device.throttle_reasons else ""),
    Metric("spill", "SPILL", 5, 10, "",
           "spilled_bytes", say=fmt.size),
    Metric("restarts", "RST", 3, 11, "", "restarts", say=fmt.count,
           odd="warn"),
    Metric("ecc", "ECC", 4, 12, "ecc_errors", say=fmt.count,
           odd="bad"),
    Metric("idle", "IDLE", 4, 13, "idle_since",
           is_moment=True, say=fmt.age, over=max, odd="plain"),
)  # fmt: skip
GRAPHED = (UTIL, MEM, POWER, TEMP)
"""The metrics with a history."""
LAST_TASK = Metric(
    "last", "", 0, name="LAST TASK",
    ends=(f"{OLDEST_TASK_S:.0f} s ago", "now"),
)  # fmt: skip
HEAT = (*GRAPHED, LAST_TASK)
"""The metrics that the cells of the heat map can show."""
OF_HOSTS = (
    Metric("cpu", "CPU", 4, 2, host="cpu_percent", odd="dim"),
    Metric(
        "memory", "HOST MEM", 11, 3, host="memory_used_bytes",
        whole=lambda host: host.reading.memory_total_bytes, write=_memory, by_share=True, odd="dim",
    ),
    Metric("load", "LOAD", 5, 4, host="load_1m", odd="dim",
           say=lambda value: fmt.number(value, 1)),
    Metric("receive", "RECV/s", 7, 5, host="network_receive_bytes_per_s", odd="dim",
           say=fmt.size),
    Metric("send", "SEND/s", 7, 6, host="network_send_bytes_per_s", odd="dim",
           say=fmt.size),
)  # fmt: skip
OF_CPU_HOSTS = (
    Metric(
        "util", "CPU", 10, host="cpu_percent", whole=lambda _: 100.0,
        say=fmt.percent, least=6, most=22, by_share=True, kept=series.Metric.UTILIZATION,
        top=100.0,
    ),
    Metric(
        "mem", "MEM", 12, host="memory_used_bytes",
        whole=lambda host: host.reading.memory_total_bytes, say=fmt.size, write=_memory,
        least=6, most=22, by_share=True, kept=series.Metric.MEMORY, top=100.0,
    ),
)  # fmt: skip
"""What hosts of CPU workers show in place of their GPUs."""

Mark = tuple[str, str, str]
"""A state's shape, word and role."""
MARKS: Mapping[SlotState, Mark] = {
    SlotState.LOST: ("✖", "lost", "bad"),
    SlotState.SILENT: ("◌", "silent", "warn"),
    SlotState.CRASHED: ("✖", "crashed", "bad"),
    SlotState.CRASH_LOOP: ("■", "crash loop", "bad"),
    SlotState.WRONG_DEVICE: ("◆", "wrong GPU", "bad"),
    SlotState.BUSY: ("●", "busy", ""),
    SlotState.IDLE: ("○", "idle", "dim"),
    SlotState.PAUSED: ("‖", "paused", "warn"),
    SlotState.STARTING: ("◔", "starting", "accent"),
    SlotState.RETIRING: ("▾", "retiring", "accent"),
    SlotState.FOREIGN: ("◆", "in use", ""),
    SlotState.FREE: ("·", "free", "dim"),
    SlotState.EXCLUDED: ("–", "excluded", "dim"),
}
HOST_MARKS: Mapping[HostState, Mark] = {
    **{state: ("◔", state.value, "accent") for state in HostState},
    HostState.READY: ("●", "ready", ""),
    HostState.FAILED: ("✖", "failed", "bad"),
    HostState.SILENT: ("◌", "silent", "warn"),
    HostState.RECONNECTING: ("◌", "reconnecting", "warn"),
}


def host_state(host: HostStatus, now: float) -> Part:
    """Return a host's state for people and its role; of one that is not ready, since when."""
    shape, word, role = HOST_MARKS[host.state]
    age = fmt.age(now - (host.read_at or host.state_since))
    return f"{shape} {word}" + ("" if host.state is HostState.READY else f" {age}"), role


def slot_state(slot: Slot, now: float) -> Part:
    """Return a slot's state for people and its role; of what does not answer, for how long."""
    shape, word, role = MARKS[slot.state]
    if slot.host_silent and slot.state is SlotState.SILENT:
        word += f" {fmt.age(None if slot.host.read_at is None else now - slot.host.read_at)}"
    elif slot.state is SlotState.SILENT:
        word = silence(max(slot.workers, key=lambda worker: worker.silent_for_s))
    return f"{shape} {word}", role


def silence(worker: WorkerStatus) -> str:
    """Return in a word or two how a worker does not answer, and for how long.

    >>> silence(WorkerStatus("a", "h", WorkerState.SILENT, silent_for_s=12.3))
    'silent 12s'
    >>> silence(WorkerStatus("a", "h", WorkerState.SILENT, stopped=True))
    'stopped'
    """
    age = fmt.age(worker.silent_for_s) if worker.silent_for_s else ""
    return f"{'stopped' if worker.stopped else 'silent'} {age}".rstrip()


def worker_state(worker: WorkerStatus) -> Part:
    """Return a worker's state for people and its role."""
    shape, word, role = MARKS[state_of_worker(worker)]
    return f"{shape} {silence(worker) if worker.state is WorkerState.SILENT else word}", role


def state_cell(state: Part, width: int) -> Line:
    """Return a state in a cell of a table; where it is too long its age stays whole.

    >>> state_cell(("◌ stopped 12s", "warn"), 10)
    [('◌ sto… 12s', 'warn')]
    """
    text, role = state
    word, _, age = text.rpartition(" ")
    if len(text) > width and age[:1].isdigit():
        text = f"{fitted(word, width - len(age) - 1)} {age}"
    return [(fitted(text, width), role)]
