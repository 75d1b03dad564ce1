"""One GPU or CPU worker in full, in so many lines: graphs, worker, processes, log. Pure.

The fleet shows it below its rows or in a rail, the device view as large as the screen. The
graphs are as many side by side as leave room for what is below them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from gputui.model.readings import DeviceProcess, DeviceReading, Owner
from gputui.model.series import Metric, Span
from gputui.model.slots import Slot, wrong_device
from gputui.model.snapshot import HostStatus, WorkerStatus
from gputui.tui.rendering import format as fmt
from gputui.tui.rendering import metrics
from gputui.tui.rendering.gauges import axis, graph
from gputui.tui.rendering.lines import Line, Part, fitted, wrapped
from gputui.tui.rendering.marks import slot_state, worker_state
from gputui.tui.rendering.metrics import GRAPHED

if TYPE_CHECKING:
    from gputui.model.history import History

LEAST_LINES = 6
"""Fewest lines for a GPU in full."""
LEAST_GRAPH = 18
"""Cells that a graph is wide at least."""
ROWS, MOST_ROWS = 4, 12
"""Lines of a graph, and to how many it grows."""
GAP = 2
WIDE = 110
"""Columns from which the log stands next to the worker."""
TIME_CELLS = 9
"""Before a line of a log."""


@dataclass(frozen=True, slots=True)
class Graph:
    """A history as it is drawn: up to 100 of its unit, or to a top of its own."""

    title: str
    key: str
    """Whose history it is."""
    metric: Metric
    now: str
    limit: str = "100%"
    """What its limit is called."""
    top: float = 100.0
    limit_at: float = 1.0
    """Where the limit is drawn in, as a share of the top."""
    grows: bool = False
    """Whether there is no limit: the top is then the most that is shown, at least `top`."""


def graphs_of(slot: Slot) -> tuple[Graph, ...]:
    """Return the graphs of a slot: of its GPU, else of its CPU worker and its host."""
    if slot.device is None:
        return _cpu_graphs(slot.workers[0], slot.host) if slot.workers else ()
    return tuple(_graph_of(metric, slot, slot.device.uuid) for metric in GRAPHED)


def _graph_of(metric: metrics.Metric, slot: Slot, uuid: str) -> Graph:
    assert metric.kept is not None
    now, whole = metric.say(metric.of(slot)), metric.whole(slot)
    top = metric.top or whole
    if not top:
        return Graph(metric.name, uuid, metric.kept, now, "{:.0f} W", 1.0, grows=True)
    limit_at = min(1.0, whole / top) if whole else 1.0
    return Graph(metric.name, uuid, metric.kept, now, metric.say(whole), top, limit_at)


def _cpu_graphs(worker: WorkerStatus, host: HostStatus) -> tuple[Graph, ...]:
    read, name = host.reading, host.name
    rss, most = fmt.size(worker.rss_bytes), fmt.size(worker.memory_limit_bytes)
    used, total = fmt.size(read.memory_used_bytes), fmt.size(read.memory_total_bytes)
    cpu, threads = fmt.percent(worker.cpu_percent), f"{100 * worker.nthreads}%"
    tasks = f"{fmt.count(worker.executing)} run {fmt.count(worker.ready)} ready"
    traffic = f"{fmt.size(read.network_bytes_per_s)}/s"
    return (
        Graph("CPU", worker.name, Metric.UTILIZATION, cpu, threads),
        Graph("MEM", worker.name, Metric.MEMORY, rss, most),
        Graph("TASKS", worker.name, Metric.TASKS, tasks, "{:.0f}", worker.nthreads, grows=True),
        Graph("HOST CPU", name, Metric.UTILIZATION, fmt.percent(read.cpu_percent)),
        Graph("HOST MEM", name, Metric.MEMORY, used, total),
        Graph("HOST NET", name, Metric.NETWORK, traffic, "{:.0f} MB/s", 1.0, grows=True),
    )


def title_line(slot: Slot, span: Span, width: int, now: float) -> Line:
    """Return the line over a GPU in full: its name, model and state, and how far back it goes."""
    state, role = slot_state(slot, now)
    device = slot.device
    parts: list[Part] = [("── ", "rule"), (fmt.safe(slot.key), "title"), (f"  {_kind(slot)}", "")]
    parts.append((f"  {state} ", role))
    end: list[Part] = [(f" {span.title} ", ""), ("t", "key"), (" ──", "rule")]
    room = width - sum(len(text) for text, _ in (*parts, *end))
    uuid = f" {fmt.safe(device.uuid)} " if device and room > len(device.uuid) + 8 else ""
    return [*parts, (uuid, "dim"), ("─" * max(0, room - len(uuid)), "rule"), *end]


def _kind(slot: Slot) -> str:
    if slot.device is not None:
        return fmt.safe(slot.device.name)
    pinned = any(worker.device_uuid for worker in slot.workers)
    return "GPU without readings" if pinned else "CPU worker"


ABREAST = {4: (1, 2, 4), 6: (1, 3, 6)}
"""Number of graphs → how many of them may stand next to each other."""


def graphs_side_by_side(number: int, width: int, height: int) -> int:
    """Return how many graphs stand next to each other so that all fit so many lines.

    >>> [graphs_side_by_side(4, *size) for size in ((60, 40), (120, 14), (80, 8))]
    [1, 2, 4]
    >>> graphs_side_by_side(6, 80, 12), graphs_side_by_side(6, 120, 8)
    (3, 6)
    """
    ways = [each for each in ABREAST[number] if width < 80 or each > 1]
    fitting = [each for each in ways if width // each >= LEAST_GRAPH] or ways[:1]
    return next((each for each in fitting if _least(number, each) <= height), fitting[-1])


def _least(number: int, abreast: int) -> int:
    """Return how many lines graphs take that are as low as they may be."""
    return number // abreast * (ROWS + 1) + 1


def least_graph_lines(slot: Slot, width: int, height: int) -> int:
    """Return how many lines a slot's graphs take at least where they may have so many."""
    number = len(graphs_of(slot))
    return _least(number, graphs_side_by_side(number, width, height)) if number else 0


def graph_lines(slot: Slot, history: "History", span: Span, width: int, height: int) -> list[Line]:
    """Return a slot's graphs in at most so many lines, over a line that says when."""
    graphs = graphs_of(slot)
    if not graphs or width < LEAST_GRAPH:
        return []
    abreast = graphs_side_by_side(len(graphs), width, height)
    rows = min(MOST_ROWS, (height - 1) * abreast // len(graphs) - 1)
    if rows < 1:
        return []
    each = (width - GAP * (abreast - 1)) // abreast
    lines: list[Line] = []
    for first in range(0, len(graphs), abreast):
        shelf = graphs[first : first + abreast]
        blocks = [_block(drawn, history, span, each, rows) for drawn in shelf]
        lines += [side_by_side(parts) for parts in zip(*blocks, strict=True)]
    return [*lines, side_by_side([[(axis(span.seconds, each), "dim")]] * abreast)]


def side_by_side(lines: Sequence[Line]) -> Line:
    """Return lines as one, with a gap between."""
    first, *rest = lines
    return [*first, *(part for line in rest for part in ((" " * GAP, ""), *line))]


def _block(drawn: Graph, history: "History", span: Span, width: int, rows: int) -> list[Line]:
    """Return one graph under its title, the present value and the limit at its ends."""
    values = history.steps(drawn.key, drawn.metric, span, 2 * width)
    top, limit = drawn.top, drawn.limit
    if drawn.grows:
        top = max(top, *(value for value in values if value is not None), 0.0)
        limit = limit.format(top)
    shares = [None if value is None else value / top for value in values]
    now = fitted(drawn.now, min(len(drawn.now), width - len(drawn.title) - 1))
    room = width - len(drawn.title) - 1 - len(now)
    limit = limit.rjust(room) if len(limit) < room else " " * room
    title: Line = [(f"{drawn.title} ", "dim"), (now, "title"), (limit, "dim")]
    return [title, *graph(shares, width, rows, limit=None if drawn.grows else drawn.limit_at)]


def trouble_line(slot: Slot, alarms: Sequence[str]) -> Line:
    """Describe the trouble with a GPU in a line, empty without any."""
    device = slot.device
    found = list(alarms)
    if device is not None and device.throttle_reasons:
        found.append(f"{fmt.number(device.sm_clock_mhz)} MHz: {', '.join(device.throttle_reasons)}")
    if device is not None and device.ecc_errors:
        found.append(f"{device.ecc_errors} uncorrected ECC errors")
    return [("! ", "warn"), (fmt.safe(" · ".join(found)), "warn")] if found else []


def worker_lines(worker: WorkerStatus, now: float) -> list[Line]:
    """Describe a worker, and for how long its task has run."""
    state, role = worker_state(worker)
    rss = fmt.memory(worker.rss_bytes, worker.memory_limit_bytes)
    task = fmt.safe(worker.current_task) if worker.current_task else fmt.MISSING
    since = worker.task_since
    how_long = "" if since is None else f" for {fmt.elapsed(now - since)}"
    lines: list[Line] = [
        [
            ("worker ", "dim"),
            (fmt.safe(worker.name), "title"),
            (f"  {state}", role),
            (f"  pid {fmt.number(worker.pid)}", "dim"),
            (f"  died {worker.restarts}×", "warn" if worker.restarts else "dim"),
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
            (f"  cpu {fmt.percent(worker.cpu_percent)}", ""),
        ],
    ]
    if wrong_device(worker):
        lines.append([(f"its CUDA context is on {worker.seen_device_uuid}", "bad")])
    if worker.reason:
        lines.append([(fmt.safe(worker.reason), "bad")])
    return lines


def interconnect_line(device: DeviceReading) -> Line:
    """Describe a GPU's links to the others and to its host; empty if NVML does not report them.

    >>> from gputui.model.readings import Interconnect
    >>> links = Interconnect(18, 4, 480e9, ("1", "2"), pcie_generation=5, pcie_width=16)
    >>> read = DeviceReading("GPU-1", "0", "H200", interconnect=links, nvlink_bytes_per_s=12e9)
    >>> "".join(text for text, _ in interconnect_line(read))
    'links  18 x NVLink 4 to 1 2  11G/s (447G/s each way)  PCIe 5 x16'
    """
    if (links := device.interconnect) is None:
        return []
    parts: list[Part] = []
    if links.nvlinks:
        peers = " ".join(links.nvlink_peers) or "no GPU of this host"
        parts.append((f"{links.nvlinks} x NVLink {links.nvlink_generation or ''} to {peers}", ""))
        parts.append((f"  {fmt.size(device.nvlink_bytes_per_s)}/s", ""))
        parts.append((f" ({fmt.size(links.nvlink_bytes_per_s)}/s each way)  ", "dim"))
    if links.pcie_generation:
        width = f" x{links.pcie_width}" if links.pcie_width else ""
        parts.append((f"PCIe {links.pcie_generation}{width}", "dim"))
    return [("links  ", "dim"), *parts] if parts else []


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
    """A slot, with everything that its page shows next to its readings."""

    slot: Slot
    history: "History"
    span: Span
    now: float
    alarms: Sequence[str] = ()
    log: Sequence[tuple[float, str]] = ()
    """The end of its worker's log: when, and what."""


def detail_lines(detail: Detail, width: int, height: int) -> list[Line]:
    """Return a slot in full in exactly so many lines or fewer."""
    slot = detail.slot
    title = title_line(slot, detail.span, width, detail.now)
    below = facts(detail)
    room = height - 1
    least = least_graph_lines(slot, width, room - min(len(below), room // 3))
    most = max(least, room - len(below) - min(4, len(detail.log)))
    graphs = graph_lines(slot, detail.history, detail.span, width, min(room, most))
    room -= len(graphs)
    return [title, *graphs, *beneath(below, detail.log, width, room)][:height]


def facts(detail: Detail) -> list[Line]:
    """Describe a slot in words."""
    slot = detail.slot
    trouble = trouble_line(slot, detail.alarms)
    lines = [trouble] if trouble else []
    for worker in slot.workers:
        lines += worker_lines(worker, detail.now)
    if not slot.workers:
        lines.append([("no worker", "dim")])
    if slot.device is not None:
        lines += [line] if (line := interconnect_line(slot.device)) else []
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
    """Return the last lines of a log, whole, in so many lines.

    Without what sets them in columns and draws rules between them, as Dask's worker does at its
    start: next to the worker there is no room for it.
    """
    lines: list[Line] = []
    worded = [(at, " ".join(text.split())) for at, text in log if text.strip(" -=")]
    for at, text in worded[-number:] if number else ():
        first, *rest = wrapped(text, width - TIME_CELLS) or [()]
        lines.append([(f"{datetime.fromtimestamp(at):%H:%M:%S} ", "dim"), *first])
        lines += [[(" " * TIME_CELLS, ""), *line] for line in rest]
    return lines[-number:]
