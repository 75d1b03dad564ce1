"""One GPU, drilled down: its readings and history, its processes, its worker and that one's log."""

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.containers import Vertical

from gputui.snapshot import DeviceProcess, Owner, WorkerStatus
from gputui.tui import format as fmt
from gputui.tui.commands import Command
from gputui.tui.pane import Line, Pane
from gputui.tui.rows import Field, fitting, heading, row
from gputui.tui.slots import MARKS, Slot, misplaced, state_of_worker
from gputui.tui.table import Table
from gputui.tui.view import View
from gputui.tui.views.logs import LogPane
from gputui.tui.watched import Watched

GAUGE_CELLS = 24
LABEL_CELLS = 7
MOST_PROCESSES = 6
"""That are seen at once; the list scrolls."""
OWNER_ROLES = {Owner.OURS: "good", Owner.OTHER: "warn", Owner.UNKNOWN: "warn"}

PROCESS_FIELDS: tuple[Field[DeviceProcess], ...] = (
    Field("PID", 8, 0, lambda p: str(p.pid) if p.pid else fmt.MISSING, right=True),
    Field("WHOSE", 8, 0, lambda p: p.owner.value, lambda p: OWNER_ROLES[p.owner]),
    Field("USER", 10, 1, lambda p: fmt.safe(p.user) if p.user else fmt.MISSING),
    Field("MEMORY", 7, 0, lambda p: fmt.size(p.memory_bytes), right=True),
    Field("COMMAND", 20, 0, lambda p: fmt.safe(p.command) if p.command else fmt.MISSING),
)


def device_lines(slot: Slot, history: Sequence[int], width: int, now: float) -> list[Line]:
    """Return what is read of a slot's device, with gauges and its history."""
    mark, device, host = MARKS[slot.state], slot.device, slot.host
    title: Line = [
        (fmt.safe(slot.key), "title"),
        (f"  {mark.shape} {slot.state.value}", mark.role),
        (f"  {fmt.safe(device.name)}  {device.uuid}" if device else "  CPU worker", "dim"),
    ]
    lines = [title]
    if slot.dead and host.read_at is not None:
        lines.append([(f"last read {fmt.age(now - host.read_at)} ago  {host.reason}", "warn")])
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
        [*_label("recent"), (_graph(history, width - LABEL_CELLS - 1), "busy")],
    ]
    return lines


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


def _graph(history: Sequence[int], width: int) -> str:
    return fmt.braille([None if value < 0 else value / 100 for value in history], max(1, width))


def worker_lines(worker: WorkerStatus) -> list[Line]:
    """Return what is known of a worker."""
    mark = MARKS[state_of_worker(worker)]
    pinned = "" if worker.seen_device_uuid is None else "pinned to its GPU"
    if misplaced(worker):
        pinned = f"its CUDA context is on {worker.seen_device_uuid}"
    rss = fmt.memory(worker.rss_bytes, worker.memory_limit_bytes)
    lines: list[Line] = [
        [
            (f"{mark.shape} {worker.state.value}", mark.role),
            (f"  {fmt.safe(worker.name)}", "title"),
            (f"  pid {fmt.number(worker.pid)}  {worker.address or ''}", "dim"),
            (f"  {pinned}", "bad" if misplaced(worker) else "dim"),
        ],
        [
            (f"cpu {_with_unit(worker.cpu_percent)}  rss {rss}", ""),
            (f"  managed {fmt.size(worker.managed_bytes)}", ""),
            (f"  on gpu {fmt.size(worker.device_managed_bytes)}", ""),
            (f"  spilled {fmt.size(worker.spilled_bytes)}", "warn" if worker.spilled_bytes else ""),
            (f"  restarts {worker.restarts}", "warn" if worker.restarts else ""),
        ],
        [
            (f"executing {fmt.count(worker.executing)}  ready {fmt.count(worker.ready)}", ""),
            (f"  in memory {fmt.count(worker.in_memory)}", ""),
            (f"  {fmt.safe(worker.current_task)}" if worker.current_task else "", "accent"),
        ],
    ]
    return [*lines, [(fmt.safe(worker.reason), "bad")]] if worker.reason else lines


class DeviceView(View):
    """A GPU, its processes, its worker, and the end of its log."""

    NAME = "device"
    DEFAULT_CSS = """
    DeviceView { layout: vertical; }
    DeviceView Pane { height: auto; }
    DeviceView Table { height: auto; }
    DeviceView LogPane { height: 1fr; }
    DeviceView .part { height: auto; border-top: solid $panel; }
    DeviceView #log { height: 1fr; border-top: solid $panel; }
    """

    def __init__(self) -> None:
        super().__init__()
        self._key = ""
        self._origin = "fleet"
        self._slot: Slot | None = None
        self._readings, self._worker = Pane(), Pane()
        for pane in (self._readings, self._worker):
            pane.can_focus = False
        self._processes = Table()
        self._log = LogPane()
        self._log.can_focus = False

    def compose(self) -> ComposeResult:
        """Lay out the parts, one below the other."""
        yield self._readings
        with Vertical(classes="part"):
            yield self._processes
        with Vertical(classes="part"):
            yield self._worker
        with Vertical(id="log"):
            yield self._log

    def go_to(self, key: str) -> None:
        """Show the slot, or the worker, of this name."""
        self._key = key
        if self.screen_app.came_from not in ("", "logs", self.NAME):
            self._origin = self.screen_app.came_from
        self.screen_app.follow_logs()
        self.screen_app.draw()

    def show(self, watched: Watched) -> None:
        """Draw the newest readings."""
        slot = next((slot for slot in watched.slots if self._is(slot)), None)
        self._slot = slot
        if slot is None or watched.snapshot is None:
            _put(self._readings, [[(f"{fmt.safe(self._key)} is not there", "dim")]])
            return
        history = watched.histories.get(slot.device.uuid, ()) if slot.device else ()
        now = watched.snapshot.taken_at
        _put(self._readings, device_lines(slot, list(history), self.size.width, now))
        self._show_processes(slot)
        lines = [line for worker in slot.workers for line in worker_lines(worker)]
        _put(self._worker, lines or [[("no worker", "dim")]])
        self._show_log(watched, slot)

    def _is(self, slot: Slot) -> bool:
        return slot.key == self._key or any(worker.name == self._key for worker in slot.workers)

    def _show_processes(self, slot: Slot) -> None:
        processes = {str(n): p for n, p in enumerate(slot.device.processes if slot.device else ())}
        fields = fitting(PROCESS_FIELDS, self.size.width - 2, last_grows=True)
        height = min(MOST_PROCESSES, max(1, len(processes))) + 1
        if self._processes.styles.height is None or self._processes.styles.height.value != height:
            self._processes.styles.height = height
        self._processes.show(heading(fields), list(processes), lambda k: row(fields, processes[k]))

    def _show_log(self, watched: Watched, slot: Slot) -> None:
        name = self._worker_name(slot)
        if self._log.worker != name:
            self._log.choose(name, "")
        self._log.read(watched.logs)

    def _worker_name(self, slot: Slot) -> str:
        """Return the worker that was asked for, else the first of the slot."""
        names = [worker.name for worker in slot.workers]
        return self._key if self._key in names or not names else names[0]

    def on_table_chosen(self, event: Table.Chosen) -> None:
        """Show the log of our process; another's has none."""
        event.stop()
        slot = self._slot
        process = slot.device.processes[int(event.key)] if slot and slot.device else None
        if process is None or slot is None:
            return
        worker = next((w.name for w in slot.workers if w.pid == process.pid), None)
        if worker is not None:
            self.screen_app.go_to("logs", worker)
        else:
            self.screen_app.say(f"{process.command or 'the process'}: not one of ours")

    def crumbs(self) -> Line:
        """Say where this is in the drill-down."""
        host = fmt.safe(self._slot.host.name) if self._slot else ""
        return [
            (f"fleet › {host} › ", "dim"),
            (fmt.safe(self._key), "title"),
            ("   enter: log   esc: back", "dim"),
        ]

    def targets(self) -> tuple[str, ...]:
        """Return the slot that is shown."""
        return (self._slot.key,) if self._slot else ()

    def back(self) -> bool:
        """Go back to where this was reached from."""
        self.screen_app.go_to(self._origin, self._key)
        return True

    def focus_body(self) -> None:
        """Put the focus on the processes."""
        self._processes.focus()

    COMMANDS: ClassVar[tuple[Command, ...]] = ()


def _put(pane: Pane, lines: Sequence[Line]) -> None:
    """Show lines in a pane that is as high as they are many."""
    if pane.styles.height is None or pane.styles.height.value != len(lines):
        pane.styles.height = len(lines)
    pane.put(lines)
