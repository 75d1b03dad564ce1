"""One GPU in full, as lines of a given width and height: graphs, worker, processes, log. Pure.

The fleet shows it below its rows or in a rail, the device view as large as the screen. The
graphs are as many side by side as leave room for what is below them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from gputui.readings import DeviceProcess, DeviceReading, Owner
from gputui.slots import Slot, wrong_device
from gputui.snapshot import WorkerStatus
from gputui.tui.history import History, Metric, Span
from gputui.tui.rendering import format as fmt
from gputui.tui.rendering.gauges import graph
from gputui.tui.rendering.lines import Line, Part, fitted, wrapped
from gputui.tui.rendering.marks import slot_state, worker_state

LEAST_LINES = 6
"""Below which a GPU in full says too little for the room that it takes."""
LEAST_GRAPH = 18
"""Cells that a graph is wide at least."""
ROWS, MOST_ROWS = 4, 12
"""Lines of a graph, and to how many it grows."""
GAP = 2
WIDE = 110
"""Columns from which the log stands next to the worker."""
TOP_C = 100.0
"""The top of the temperature's graph."""
HOT_C = 85.0
TIME_CELLS = 9
"""Before a line of a log."""


@dataclass(frozen=True, slots=True)
class Graphed:
    """A reading and how it is drawn."""

    title: str
    metric: Metric
    now: Callable[[DeviceReading], str]
    top: Callable[[DeviceReading], float | None]
    """What the top of the graph stands for, in the unit of the history."""
    limit: Callable[[DeviceReading], tuple[float, str]]
    """Where its limit is drawn in, as a share of the top, and what it is called."""


def _percent(device: DeviceReading) -> str:
    value = device.utilization_percent
    return fmt.MISSING if value is None else f"{value:.0f} %"


GRAPHS = (
    Graphed("UTIL", Metric.UTILIZATION, _percent, lambda d: 100.0, lambda d: (1.0, "100 %")),
    Graphed(
        "MEM",
        Metric.MEMORY,
        lambda d: fmt.size(d.memory_used_bytes),
        lambda d: 100.0,
        lambda d: (1.0, fmt.size(d.memory_total_bytes)),
    ),
    Graphed(
        "POWER",
        Metric.POWER,
        lambda d: f"{fmt.number(d.power_w)} W",
        lambda d: d.power_limit_w,
        lambda d: (1.0, f"{fmt.number(d.power_limit_w)} W"),
    ),
    Graphed(
        "TEMP",
        Metric.TEMPERATURE,
        lambda d: f"{fmt.number(d.temperature_c)} °C",
        lambda d: TOP_C,
        lambda d: (HOT_C / TOP_C, f"{HOT_C:.0f} °C"),
    ),
)


def title_line(slot: Slot, span: Span, width: int, now: float) -> Line:
    """Return the line over a GPU in full: its name, model and state, and how far back it goes."""
    state, role = slot_state(slot, now)
    device = slot.device
    model = f"  {fmt.safe(device.name)}" if device else "  CPU worker"
    parts: list[Part] = [("── ", "rule"), (fmt.safe(slot.key), "title"), (model, "")]
    parts.append((f"  {state} ", role))
    end: list[Part] = [(f" {span.title} ", ""), ("t", "key"), (" ──", "rule")] if device else []
    room = width - sum(len(text) for text, _ in (*parts, *end))
    uuid = f" {fmt.safe(device.uuid)} " if device and room > len(device.uuid) + 8 else ""
    return [*parts, (uuid, "dim"), ("─" * max(0, room - len(uuid)), "rule"), *end]


def graphs_side_by_side(width: int, height: int) -> int:
    """Return how many graphs stand next to each other so that all four fit so many lines.

    >>> graphs_side_by_side(60, 40), graphs_side_by_side(120, 14), graphs_side_by_side(80, 8)
    (1, 2, 4)
    """
    narrow = (1, 2, 4) if width < 80 else (2, 4)
    for abreast in narrow:
        if (4 // abreast) * (ROWS + 1) + 1 <= height and width // abreast >= LEAST_GRAPH:
            return abreast
    return 4 if width // 4 >= LEAST_GRAPH else 2


def graph_lines(
    device: DeviceReading, history: History, span: Span, width: int, height: int
) -> list[Line]:
    """Return the four graphs in at most so many lines, over a line that says when."""
    abreast = graphs_side_by_side(width, height)
    shelves = 4 // abreast
    rows = min(MOST_ROWS, (height - 1) // shelves - 1)
    if rows < 1:
        return []
    each = (width - GAP * (abreast - 1)) // abreast
    lines: list[Line] = []
    for first in range(0, 4, abreast):
        blocks = [
            _block(device, graphed, history, span, each, rows)
            for graphed in GRAPHS[first : first + abreast]
        ]
        lines += [side_by_side(parts) for parts in zip(*blocks, strict=True)]
    return [*lines, side_by_side([axis(span, each)] * abreast)]


def side_by_side(lines: Sequence[Line]) -> Line:
    """Return lines as one, with a gap between."""
    first, *rest = lines
    return [*first, *(part for line in rest for part in ((" " * GAP, ""), *line))]


def _block(
    device: DeviceReading, graphed: Graphed, history: History, span: Span, width: int, rows: int
) -> list[Line]:
    """Return one graph under its title, the present value and the limit at its ends."""
    top = graphed.top(device)
    values = history.steps(device.uuid, graphed.metric, span, 2 * width)
    shares = [None if value is None or not top else value / top for value in values]
    share, name = graphed.limit(device)
    now = f"{graphed.title} {graphed.now(device)}"
    limit = name.rjust(max(0, width - len(now)))
    title: Line = [(f"{graphed.title} ", "dim"), (graphed.now(device), "title"), (limit, "dim")]
    return [title, *graph(shares, width, rows, limit=share if top else None)]


def axis(span: Span, width: int) -> Line:
    """Return the line below a graph that says where its span begins, and its middle is.

    >>> axis(Span.MINUTES_2, 40)
    [('      2:00 ago         1:00          now', 'dim')]
    """
    seconds = span.step(2 * width) * 2 * width * span.reading_s
    ticks = [(span.seconds, f"{fmt.elapsed(span.seconds)} ago")]
    ticks += [(span.seconds // 2, fmt.elapsed(span.seconds // 2))] if width >= 30 else []
    text = ""
    for ago, label in ticks:
        text = text.ljust(round(width * (1 - ago / seconds)) - len(label) // 2) + label
    return [(text + "now".rjust(width - len(text)), "dim")]


def trouble_line(slot: Slot, alarms: Sequence[str]) -> Line:
    """Return what is wrong with a GPU, or nothing."""
    device = slot.device
    found = list(alarms)
    if device is not None and device.throttle_reasons:
        found.append(f"{fmt.number(device.sm_clock_mhz)} MHz: {', '.join(device.throttle_reasons)}")
    if device is not None and device.ecc_errors:
        found.append(f"{device.ecc_errors} uncorrected ECC errors")
    return [("! ", "warn"), (fmt.safe(" · ".join(found)), "warn")] if found else []


def worker_lines(worker: WorkerStatus, since_s: float | None = None) -> list[Line]:
    """Return what is known of a worker; `since_s` is how long its task group has run."""
    state, role = worker_state(worker)
    rss = fmt.memory(worker.rss_bytes, worker.memory_limit_bytes)
    task = fmt.safe(worker.current_task) if worker.current_task else fmt.MISSING
    how_long = "" if since_s is None else f" for {fmt.elapsed(since_s)}"
    lines: list[Line] = [
        [
            ("worker ", "dim"),
            (fmt.safe(worker.name), "title"),
            (f"  {state}", role),
            (f"  pid {fmt.number(worker.pid)}", "dim"),
            (f"  restarts {worker.restarts}", "warn" if worker.restarts else "dim"),
        ],
        [
            ("task   ", "dim"),
            (task, "" if worker.current_task else "dim"),
            (how_long, "dim"),
            (f"  run {fmt.count(worker.executing)}", ""),
            (f"  ready {fmt.count(worker.ready)}", ""),
            (f"  results {fmt.count(worker.in_memory)}", ""),
        ],
        [
            ("memory ", "dim"),
            (f"rss {rss}", ""),
            (f"  on GPU {fmt.size(worker.device_managed_bytes)}" if worker.device_uuid else "", ""),
            (f"  spilled {fmt.size(worker.spilled_bytes)}", "" if worker.spilled_bytes else "dim"),
            (f"  cpu {fmt.number(worker.cpu_percent)}%", ""),
        ],
    ]
    if wrong_device(worker):
        lines.append([(f"its CUDA context is on {worker.seen_device_uuid}", "bad")])
    if worker.reason:
        lines.append([(fmt.safe(worker.reason), "bad")])
    return lines


def process_line(process: DeviceProcess) -> Line:
    """Return a process that holds memory on a GPU: ours, mine, or another user's."""
    role = "warn" if process.owner is not Owner.OURS else ""
    return [
        (f"{fmt.number(process.pid):>7} ", "dim"),
        (f"{process.owner.value:<6} ", role),
        (fitted(fmt.safe(process.user or fmt.MISSING), 8), role),
        (f"{fmt.size(process.memory_bytes):>6} ", ""),
        (fmt.safe(process.command or fmt.MISSING), role or "dim"),
    ]


@dataclass(frozen=True, slots=True)
class Detail:
    """What is known of a slot but its readings."""

    slot: Slot
    history: History
    span: Span
    now: float
    alarms: Sequence[str] = ()
    since_s: float | None = None
    log: Sequence[tuple[float, str]] = ()
    """The end of its worker's log: when, and what."""


def detail_lines(detail: Detail, width: int, height: int) -> list[Line]:
    """Return a GPU in full in exactly so many lines or fewer."""
    slot = detail.slot
    title = title_line(slot, detail.span, width, detail.now)
    below = facts(detail)
    room = height - 1
    graphs: list[Line] = []
    if slot.device is not None:
        shelves = 4 // graphs_side_by_side(width, room - min(len(below), room // 3))
        least = shelves * (ROWS + 1) + 1
        most = max(least, room - len(below) - min(4, len(detail.log)))
        graphs = graph_lines(slot.device, detail.history, detail.span, width, min(room, most))
    room -= len(graphs)
    return [title, *graphs, *beneath(below, detail.log, width, room)][:height]


def facts(detail: Detail) -> list[Line]:
    """Return what there is to say of a slot in words."""
    slot = detail.slot
    trouble = trouble_line(slot, detail.alarms)
    lines = [trouble] if trouble else []
    for worker in slot.workers:
        lines += worker_lines(worker, detail.since_s)
    if not slot.workers:
        lines.append([("no worker", "dim")])
    if slot.device is not None:
        lines += [process_line(process) for process in slot.device.processes]
    return lines


def beneath(
    below: Sequence[Line], log: Sequence[tuple[float, str]], width: int, height: int
) -> list[Line]:
    """Return facts and the end of the log: next to each other where there is room, else below."""
    if height <= 0:
        return []
    if width < WIDE:
        rest = max(0, height - len(below))
        return [*below[:height], *_log_lines(log, width, rest)]
    left = width // 2 - 1
    right = _log_lines(log, width - left - 2, height) or [[("no log lines yet", "dim")]]
    lines: list[Line] = []
    for y in range(min(height, max(len(below), len(right)))):
        first = _cut(below[y], left) if y < len(below) else []
        padding = left + 2 - sum(len(text) for text, _ in first)
        lines.append([*first, (" " * padding, ""), *(right[y] if y < len(right) else ())])
    return lines


def _cut(line: Line, width: int) -> Line:
    """Return a line of at most so many cells."""
    parts: list[Part] = []
    for text, role in line:
        if width > 0:
            parts.append((text if len(text) <= width else fitted(text, width), role))
        width -= len(text)
    return parts


def _log_lines(log: Sequence[tuple[float, str]], width: int, number: int) -> list[Line]:
    """Return the last lines of a log, whole, in so many lines."""
    lines: list[Line] = []
    for at, text in log[-number:] if number else ():
        first, *rest = wrapped(text, width - TIME_CELLS) or [()]
        lines.append([(f"{datetime.fromtimestamp(at):%H:%M:%S} ", "dim"), *first])
        lines += [[(" " * TIME_CELLS, ""), *line] for line in rest]
    return lines[-number:]
