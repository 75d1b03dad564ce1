"""One GPU or CPU worker in full, in so many lines: graphs, worker, processes, log. Pure.

The fleet shows it below its rows or in a rail, the device view as large as the screen. The
graphs are as many side by side as leave room for what is below them.
"""

from collections.abc import Sequence
from datetime import datetime

from gputui.model import series
from gputui.model.frozen import frozen
from gputui.model.readings import DeviceProcess, DeviceReading, Owner, claim_text
from gputui.model.series import Span
from gputui.model.slots import Slot, wrong_device
from gputui.model.snapshot import HostStatus, WorkerStatus
from gputui.tui.rendering import Line, Part, axis, filled, fitted, graph, wrapped
from gputui.tui.rendering import format as fmt
from gputui.tui.rendering.metrics import (
    GRAPHED,
    MEM,
    OF_CPU_HOSTS,
    UTIL,
    Metric,
    slot_state,
    worker_state,
)
from gputui.tui.rendering.owners import owner_line
from gputui.tui.watched import Watched
from gputui.tui.widgets.logbook import LogLine

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


@frozen
class Graph:
    """A history as it is drawn: up to 100 of its unit, or to a top of its own."""

    title: str
    key: str
    """Whose history it is."""
    metric: series.Metric
    now: str
    limit: str = "100%"
    """What its limit is called."""
    top: float = 100.0
    limit_at: float | None = 100.0
    """Where the limit is drawn in; without one the top is the most that is shown, or `top`."""

    def lines(self, values: Sequence[float | None], width: int, rows: int = ROWS) -> list[Line]:
        """Return it under its title, the present value and the limit at its ends."""
        top, limit = self.top, self.limit
        if self.limit_at is None:
            top = max(top, *(value for value in values if value is not None), 0.0)
            limit = limit.format(top)
        now = fitted(self.now, min(len(self.now), width - len(self.title) - 1))
        head: Line = [(f"{self.title} ", "dim"), (now, "title")]
        room = width - sum(len(text) for text, _ in head)
        return [
            [*head, (limit.rjust(room) if len(limit) < room else " " * room, "dim")],
            *graph(values, width, rows, top, self.limit_at),
        ]


def graphs_of(slot: Slot) -> tuple[Graph, ...]:
    """Return the graphs of a slot: of its GPU, else of its CPU worker and its host."""
    if slot.device is not None:
        return tuple(_graph_of(metric, slot, slot.device.uuid, metric.name) for metric in GRAPHED)
    if not slot.workers:
        return ()
    worker, host = slot.workers[0], slot.host
    tasks = f"{fmt.count(worker.executing)} run {fmt.count(worker.ready)} ready"
    traffic = f"{fmt.size(host.reading.network_bytes_per_s)}/s"
    return (
        _graph_of(UTIL, slot, worker.name, "CPU"),
        _graph_of(MEM, slot, worker.name, "MEM"),
        Graph("TASKS", worker.name, series.Metric.TASKS, tasks, "{:.0f}", worker.nthreads, None),
        _graph_of(OF_CPU_HOSTS[0], host, host.name, "HOST CPU"),
        _graph_of(OF_CPU_HOSTS[1], host, host.name, "HOST MEM"),
        Graph("HOST NET", host.name, series.Metric.NETWORK, traffic, "{:.0f} MB/s", 1.0, None),
    )


def _graph_of(metric: Metric, read: Slot | HostStatus, key: str, title: str) -> Graph:
    assert metric.kept is not None
    now, whole = metric.say(metric.of(read)), metric.whole(read)
    top = metric.top or whole
    if not top:
        return Graph(title, key, metric.kept, now, "{:.0f} W", 1.0, None)
    return Graph(title, key, metric.kept, now, metric.say(whole), top, min(top, whole or top))


def title_line(slot: Slot, span: Span, width: int, now: float) -> Line:
    """Return the line over a GPU in full: its name, model and state, and how far back it goes."""
    state, role = slot_state(slot, now)
    kind = "GPU without readings" if slot.on_gpu else "CPU worker"
    if slot.device is not None:
        kind = fmt.safe(slot.device.name)
    parts: list[Part] = [
        ("── ", "rule"),
        (fmt.safe(slot.key), "title"),
        (f"  {kind}", ""),
        (f"  {state} ", role),
    ]
    end: list[Part] = [(f" {span.title} ", ""), ("t", "key"), (" ──", "rule")]
    room = width - sum(len(text) for text, _ in (*parts, *end))
    return [*parts, ("─" * max(0, room), "rule"), *end]


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
    return next(
        (each for each in fitting if number // each * (ROWS + 1) + 1 <= height), fitting[-1]
    )


def graph_lines(watched: Watched, slot: Slot, span: Span, width: int, height: int) -> list[Line]:
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
        blocks = [
            drawn.lines(watched.history.steps(drawn.key, drawn.metric, span, 2 * each), each, rows)
            for drawn in shelf
        ]
        lines += [side_by_side(parts) for parts in zip(*blocks, strict=True)]
    return [*lines, side_by_side([[(axis(span.seconds, each), "dim")]] * abreast)]


def side_by_side(lines: Sequence[Line]) -> Line:
    """Return lines as one, with a gap between."""
    first, *rest = lines
    return [*first, *(part for line in rest for part in ((" " * GAP, ""), *line))]


def head_lines(watched: Watched, slot: Slot, span: Span, width: int) -> list[Line]:
    """Return the title of a GPU in full, and the trouble with it."""
    now, device = watched.snapshot.taken_at, slot.device
    lines = [title_line(slot, span, width, now)]
    found: list[str] = [*watched.by_subject.get(slot.key, ())]
    if device is not None and device.throttle_reasons:
        found.append(f"{fmt.number(device.sm_clock_mhz)} MHz: {', '.join(device.throttle_reasons)}")
    if device is not None and device.ecc_errors:
        found.append(f"{device.ecc_errors} uncorrected ECC errors")
    if found:
        lines.append([("! ", "warn"), (fmt.safe(" · ".join(found)), "warn")])
    if slot.dead and slot.host.read_at is not None:
        age = fmt.age(now - slot.host.read_at)
        lines.append([(f"last read {age} ago  {fmt.safe(slot.host.reason)}", "warn")])
    return lines


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
    >>> links = Interconnect(18, 480e9, ("1", "2"), pcie_generation=5, pcie_width=16)
    >>> read = DeviceReading("GPU-1", "0", "H200", interconnect=links, nvlink_bytes_per_s=12e9)
    >>> "".join(text for text, _ in interconnect_line(read))
    'links  18 x NVLink to 1 2  11G/s of 447G/s  PCIe 5 x16'
    """
    if (links := device.interconnect) is None:
        return []
    nvlink = f"{links.nvlinks} x NVLink to {' '.join(links.nvlink_peers) or 'no GPU of this host'}"
    speed = f"  {fmt.size(device.nvlink_bytes_per_s)}/s of {fmt.size(links.nvlink_bytes_per_s)}/s  "
    pcie = f"PCIe {fmt.number(links.pcie_generation)} x{fmt.number(links.pcie_width)}"
    return [("links  ", "dim"), (nvlink + speed if links.nvlinks else "", ""), (pcie, "dim")]


def process_line(process: DeviceProcess, now: float) -> Line:
    """Return a process that holds memory on a GPU: ours, mine, or another user's."""
    since = process.since
    role = "warn" if process.owner is not Owner.OURS else ""
    return [
        (f"{fmt.number(process.pid):>7} ", "dim"),
        (f"{process.owner.value:<6} ", role),
        (fitted(fmt.safe(process.user or fmt.MISSING), 8), role),
        (f"{fmt.size(process.memory_bytes):>6} ", ""),
        (f"{fmt.age(None if since is None else now - since):>4} ", "dim"),
        (fmt.safe(process.command or fmt.MISSING), role or "dim"),
    ]


def detail_lines(
    watched: Watched, slot: Slot, span: Span, width: int, height: int, page: str = ""
) -> list[Line]:
    """Return a slot in full in exactly so many lines or fewer.

    `page` is the slot or worker whose page it is, where its processes are listed apart.
    """
    head, now = head_lines(watched, slot, span, width), watched.snapshot.taken_at
    below, log = facts(slot, now), log_of(watched, slot, page)
    if slot.device is not None and not page:
        below += [process_line(each, now) for each in slot.device.processes]
    room = height - len(head)
    most = max(room - len(below) - min(4, len(log)), room * 2 // 3)
    graphs = graph_lines(watched, slot, span, width, most)
    return [*head, *graphs, *beneath(below, log, width, room - len(graphs))][:height]


def facts(slot: Slot, now: float) -> list[Line]:
    """Describe the workers on a slot, else its users, and its links."""
    lines = [line for worker in slot.workers for line in worker_lines(worker, now)]
    if slot.device is not None and (not lines or claim_text(slot.device, now)):
        lines.append(owner_line(slot.device, now))
    links = interconnect_line(slot.device) if slot.device else []
    return [*(lines or [[("no worker", "dim")]]), *([links] if links else [])]


LOG_LINES = 40


def log_of(watched: Watched, slot: Slot, worker: str = "") -> list[LogLine]:
    """Return the end of the log of this worker, or of the first on a slot."""
    names = [each.name for each in slot.workers] or [worker]
    return watched.logs.last(worker if worker in names else names[0], LOG_LINES)


def beneath(below: Sequence[Line], log: Sequence[LogLine], width: int, height: int) -> list[Line]:
    """Return facts and the end of the log: next to each other where there is room, else below."""
    if height <= 0:
        return []
    if width < WIDE:
        return [*below[:height], *_log_lines(log, width, max(0, height - len(below)))]
    left = width // 2 - 1
    right = _log_lines(log, width - left - 2, height) or [[("no log lines yet", "dim")]]
    lines: list[Line] = []
    for y in range(min(height, max(len(below), len(right)))):
        first = filled(below[y] if y < len(below) else (), left)
        lines.append([*first, ("  ", ""), *(right[y] if y < len(right) else ())])
    return lines


def _log_lines(log: Sequence[LogLine], width: int, number: int) -> list[Line]:
    """Return the last lines of a log, whole, in so many lines.

    Without what sets them in columns and draws rules between them, as Dask's worker does at its
    start: next to the worker there is no room for it.
    """
    lines: list[Line] = []
    worded = [(line.at, " ".join(line.text.split())) for line in log if line.text.strip(" -=")]
    for at, text in worded[-number:] if number else ():
        first, *rest = wrapped(text, width - TIME_CELLS) or [()]
        lines.append([(f"{datetime.fromtimestamp(at):%H:%M:%S} ", "dim"), *first])
        lines += [[(" " * TIME_CELLS, ""), *line] for line in rest]
    return lines[-number:]
