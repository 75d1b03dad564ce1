"""What is known of one GPU and of the worker on it, in lines. Pure."""

from gputui.slots import Slot, state_of_worker, wrong_device
from gputui.snapshot import WorkerStatus
from gputui.tui.history import KEPT, History
from gputui.tui.rendering import format as fmt
from gputui.tui.rendering.marks import MARKS
from gputui.tui.widgets.pane import Line

GAUGE_CELLS = 24
LABEL_CELLS = 7


def device_lines(slot: Slot, history: History, width: int, now: float) -> list[Line]:
    """Return what is read of a slot's device, with gauges and its history."""
    mark, device, host = MARKS[slot.state], slot.device, slot.host
    lines: list[Line] = [
        [(fmt.safe(slot.key), "title"), (f"  {mark.shape} {slot.state.value}", mark.role)],
        [(f"{fmt.safe(device.name)}  {fmt.safe(device.uuid)}" if device else "CPU worker", "dim")],
    ]
    if slot.dead and host.read_at is not None:
        lines.append(
            [(f"last read {fmt.age(now - host.read_at)} ago  {fmt.safe(host.reason)}", "warn")]
        )
    if device is None:
        return lines
    power = _share(device.power_w, device.power_limit_w)
    lines += [
        _gauge("util", _share(device.utilization_percent, 100), _percent(slot)),
        _gauge(
            "memory",
            _share(device.memory_used_bytes, device.memory_total_bytes),
            fmt.memory(device.memory_used_bytes, device.memory_total_bytes),
        ),
        _gauge(
            "power", power, f"{fmt.number(device.power_w)}/{fmt.number(device.power_limit_w)} W"
        ),
        [*_label("temp"), (f"{fmt.number(device.temperature_c)} °C", ""), *_trouble(slot)],
        *_graphs(history, device.uuid, max(1, width - LABEL_CELLS - 1)),
    ]
    return lines


def _graphs(history: History, uuid: str, cells: int) -> list[Line]:
    """Return the last readings, one a dot, and all that are kept where those are more."""
    dots = 2 * cells
    recent, hour = history.last(uuid, dots), history.steps(uuid, max(1, KEPT // dots), dots)
    lines = [[*_label("recent"), (fmt.braille(fmt.shares(recent), cells), "busy")]]
    if len(recent) == dots:
        lines.append([*_label("hour"), (fmt.braille(fmt.shares(hour), cells), "busy")])
    return [*lines]


def _label(text: str) -> Line:
    return [(f"{text:<{LABEL_CELLS}} ", "dim")]


def _gauge(name: str, share: float | None, text: str) -> Line:
    return [*_label(name), (fmt.bar(share, GAUGE_CELLS), "busy"), (f" {text}", "")]


def _share(value: float | None, of: float | None) -> float | None:
    return None if value is None or not of else value / of


def _percent(slot: Slot) -> str:
    return _with_unit(slot.device.utilization_percent if slot.device else None)


def _with_unit(percent: float | None) -> str:
    return fmt.MISSING if percent is None else f"{percent:.0f}%"


def _trouble(slot: Slot) -> Line:
    device = slot.device
    assert device is not None
    clock = f"  {fmt.number(device.sm_clock_mhz)} MHz"
    throttled = f"  throttled: {', '.join(device.throttle_reasons)}"
    return [
        (clock, ""),
        (throttled if device.throttle_reasons else "", "warn"),
        (f"  {device.ecc_errors} uncorrected ECC errors" if device.ecc_errors else "", "bad"),
    ]


def worker_lines(worker: WorkerStatus) -> list[Line]:
    """Return what is known of a worker."""
    mark = MARKS[state_of_worker(worker)]
    pinned = "" if worker.seen_device_uuid is None else "pinned to its GPU"
    if wrong_device(worker):
        pinned = f"its CUDA context is on {worker.seen_device_uuid}"
    rss = fmt.memory(worker.rss_bytes, worker.memory_limit_bytes)
    lines: list[Line] = [
        [
            (f"{mark.shape} {worker.state.value}", mark.role),
            (f"  {fmt.safe(worker.name)}", "title"),
            (f"  pid {fmt.number(worker.pid)}", "dim"),
            (f"  {pinned}", "bad" if wrong_device(worker) else "dim"),
        ],
        [(worker.address or fmt.MISSING, "dim")],
        [
            (f"cpu {_with_unit(worker.cpu_percent)}  rss {rss}", ""),
            (f"  restarts {worker.restarts}", "warn" if worker.restarts else ""),
        ],
        [
            (f"managed {fmt.size(worker.managed_bytes)}", ""),
            (f"  on gpu {fmt.size(worker.device_managed_bytes)}", ""),
            (f"  spilled {fmt.size(worker.spilled_bytes)}", "warn" if worker.spilled_bytes else ""),
        ],
        [
            (f"executing {fmt.count(worker.executing)}  ready {fmt.count(worker.ready)}", ""),
            (f"  in memory {fmt.count(worker.in_memory)}", ""),
            (f"  {fmt.safe(worker.current_task)}" if worker.current_task else "", "accent"),
        ],
    ]
    return [*lines, [(fmt.safe(worker.reason), "bad")]] if worker.reason else lines
