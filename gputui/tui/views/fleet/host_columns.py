"""The columns of the host rows: what each shows of a host and its slots, and how it sorts. Pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from gputui.slots import Slot
from gputui.snapshot import HostState, HostStatus
from gputui.tui.rendering import format as fmt
from gputui.tui.widgets.pane import fitted

STATE_WIDTH = 18
_URGENCY = {
    HostState.REFUSED: 0.0,
    HostState.SILENT: 1.0,
    HostState.RECONNECTING: 2.0,
    HostState.READY: 4.0,
}
_COMING_UP = 3.0


@dataclass(frozen=True, slots=True)
class HostColumn:
    """One column of the host rows."""

    key: str
    title: str
    width: int
    show: Callable[[HostStatus, Sequence[Slot]], str]
    sort: Callable[[HostStatus, Sequence[Slot]], float | None]
    falling: bool = True
    """Whether the largest comes first when it is sorted by."""

    def mark(self, backwards: bool) -> str:
        """Return the mark of the order in which it is sorted by."""
        return "▼" if self.falling != backwards else "▲"

    def heading(self, mark: str = "", right: bool = True) -> str:
        """Return the title as wide as the column, with the mark of the order."""
        return fitted(self.title[: self.width - len(mark)] + mark, self.width, right)


def _number_of(
    key: str, title: str, width: int, name: str, show: Callable[[float | None], str]
) -> HostColumn:
    def read(host: HostStatus, _slots: Sequence[Slot]) -> float | None:
        value: float | None = getattr(host.reading, name)
        return value

    return HostColumn(key, title, width, lambda host, slots: show(read(host, slots)), read)


def _memory(host: HostStatus, _slots: Sequence[Slot]) -> str:
    return fmt.memory(host.reading.memory_used_bytes, host.reading.memory_total_bytes)


def _memory_used(host: HostStatus, _slots: Sequence[Slot]) -> float | None:
    used, total = host.reading.memory_used_bytes, host.reading.memory_total_bytes
    return None if used is None or not total else used / total


def _known(slots: Sequence[Slot], name: str) -> list[float]:
    """Return a reading of all GPUs that have it."""
    values = [getattr(slot.device, name) for slot in slots if slot.device is not None]
    return [value for value in values if value is not None]


def _utilization(_host: HostStatus, slots: Sequence[Slot]) -> float | None:
    known = _known(slots, "utilization_percent")
    return fmean(known) if known else None


def _gpu_memory(_host: HostStatus, slots: Sequence[Slot]) -> str:
    used, total = _known(slots, "memory_used_bytes"), _known(slots, "memory_total_bytes")
    return fmt.memory(int(sum(used)) if used else None, int(sum(total)) if total else None)


def _gpu_memory_used(_host: HostStatus, slots: Sequence[Slot]) -> float | None:
    used, total = _known(slots, "memory_used_bytes"), _known(slots, "memory_total_bytes")
    return sum(used) / sum(total) if used and sum(total) else None


def _power(_host: HostStatus, slots: Sequence[Slot]) -> float | None:
    known = _known(slots, "power_w")
    return sum(known) if known else None


def _kilowatts(host: HostStatus, slots: Sequence[Slot]) -> str:
    drawn = _power(host, slots)
    return fmt.MISSING if drawn is None else f"{drawn / 1000:.1f}kW"


STATE = HostColumn(
    "state",
    "STATE",
    STATE_WIDTH,
    lambda host, slots: host.state.value,
    lambda host, slots: _URGENCY.get(host.state, _COMING_UP),
    falling=False,
)
OF_GPUS = (
    HostColumn("util", "UTIL%", 5, lambda h, s: fmt.number(_utilization(h, s)), _utilization),
    HostColumn("mem", "GPU MEM", 11, _gpu_memory, _gpu_memory_used),
    HostColumn("power", "POWER", 6, _kilowatts, _power),
)
"""What is said of all GPUs of a host together, where there is room."""
READINGS = (
    _number_of("cpu", "CPU%", 5, "cpu_percent", fmt.number),
    HostColumn("memory", "MEMORY", 11, _memory, _memory_used),
    _number_of("load", "LOAD", 6, "load_1m", lambda value: fmt.number(value, 1)),
    _number_of("receive", "RECV/s", 7, "network_receive_bytes_per_s", fmt.size),
    _number_of("send", "SEND/s", 7, "network_send_bytes_per_s", fmt.size),
)
"""What is said of the host itself."""
HOST_COLUMNS = {column.key: column for column in (STATE, *OF_GPUS, *READINGS)}


def ordered(
    hosts: Mapping[str, HostStatus],
    by_host: Mapping[str, Sequence[Slot]],
    column: HostColumn | None,
    backwards: bool = False,
) -> list[str]:
    """Return hosts' names sorted by a column, those without a value last; as they are without."""
    if column is None:
        return list(by_host)
    values = {name: column.sort(hosts[name], slots) for name, slots in by_host.items()}
    known = [(value, name) for name, value in values.items() if value is not None]
    known.sort(key=lambda pair: pair[0], reverse=column.falling != backwards)
    unknown = [name for name, value in values.items() if value is None]
    return [name for _, name in known] + unknown


def keys_of(columns: Iterable[HostColumn]) -> list[str]:
    """Return what the hosts can be sorted by where these columns are shown."""
    return ["host", STATE.key, *(column.key for column in columns)]
