"""The workers view: each worker with its device, process and results."""

from collections.abc import Iterable
from typing import ClassVar

from gputui.model.series import Span
from gputui.model.slots import PLACES, state_of_worker, wrong_device
from gputui.model.snapshot import WorkerState, WorkerStatus
from gputui.tui.commands.command_registry import Command
from gputui.tui.filter import Fields
from gputui.tui.rendering import format as fmt
from gputui.tui.rendering.columns import Column, text_column
from gputui.tui.rendering.detail import LEAST_LINES, beneath, graph_lines, log_of, worker_lines
from gputui.tui.rendering.lines import Line, wrapped
from gputui.tui.rendering.metrics import state_cell, worker_state
from gputui.tui.views.listing import Listing, order_commands
from gputui.tui.watched import Watched
from gputui.tui.widgets.pane import HEADING, Table

UUID_CELLS = 12
"""`GPU-` and eight digits: enough to tell any two devices of a cluster apart."""
LOG_LINES = 4
"""Of a worker's log, that graphs leave room for."""


def _device(worker: WorkerStatus) -> str:
    return worker.device_uuid[:UUID_CELLS] if worker.device_uuid else "CPU"


def _pin(worker: WorkerStatus) -> str:
    if worker.device_uuid is None or worker.seen_device_uuid is None:
        return fmt.MISSING
    return "✖ elsewhere" if wrong_device(worker) else "pinned"


def _tasks(worker: WorkerStatus) -> str:
    counts = (worker.executing, worker.ready, worker.in_memory)
    return "/".join(fmt.count(count) for count in counts)


def _note(worker: WorkerStatus) -> str:
    return fmt.safe(worker.reason or worker.current_task or "")


WORKER_COLUMNS: tuple[Column[WorkerStatus], ...] = (
    text_column("WORKER", 20, 0, lambda w: fmt.safe(w.name), sort=lambda w: w.name),
    Column(
        "state", "STATE", 13, 0, lambda w, width: state_cell(worker_state(w), width),
        lambda w: PLACES[state_of_worker(w)], right=False, falling=False,
    ),
    text_column("DEVICE", UUID_CELLS, 5, _device, lambda w: "dim"),
    text_column("PIN", 11, 2, _pin, lambda w: "bad" if wrong_device(w) else "dim"),
    text_column("PID", 7, 6, lambda w: fmt.number(w.pid), lambda w: "dim", right=True),
    text_column(
        "CPU", 5, 3, lambda w: fmt.number(w.cpu_percent), sort=lambda w: w.cpu_percent, right=True
    ),
    text_column(
        "RSS/LIMIT", 11, 1, lambda w: fmt.memory(w.rss_bytes, w.memory_limit_bytes),
        sort=lambda w: w.rss_bytes, right=True,
    ),
    text_column(
        "MANAGED", 7, 4, lambda w: fmt.size(w.managed_bytes), sort=lambda w: w.managed_bytes,
        right=True,
    ),
    text_column(
        "ON GPU", 6, 8, lambda w: fmt.size(w.device_managed_bytes),
        sort=lambda w: w.device_managed_bytes, right=True,
    ),
    text_column(
        "SPILL", 5, 3, lambda w: fmt.size(w.spilled_bytes),
        lambda w: "warn" if w.spilled_bytes else "dim", lambda w: w.spilled_bytes, right=True,
    ),
    text_column("RUN/READY/RESULTS", 17, 2, _tasks, sort=lambda w: w.executing, right=True),
    text_column("FILES", 5, 9, lambda w: fmt.count(w.open_files), lambda w: "dim", right=True),
    text_column(
        "RST", 3, 1, lambda w: str(w.restarts), lambda w: "warn" if w.restarts else "dim",
        lambda w: w.restarts, right=True,
    ),
    text_column("TASK", 22, 1, _note, lambda w: "bad" if w.reason else "dim", rest=22),
)  # fmt: skip


WORKER_FILTER: Fields[WorkerStatus] = Fields(
    everything=lambda w: f"{w.name} {w.state} {w.current_task or ''} {w.reason}",
    words={"state": lambda w: w.state.value, "host": lambda w: w.host},
    choices={"state": tuple(WorkerState)},
    numbers={
        "cpu": lambda w: w.cpu_percent,
        "rss": lambda w: w.rss_bytes,
        "managed": lambda w: w.managed_bytes,
        "spill": lambda w: w.spilled_bytes,
        "executing": lambda w: w.executing,
        "ready": lambda w: w.ready,
        "restarts": lambda w: w.restarts,
        "pid": lambda w: w.pid,
    },
)


class WorkersView(Listing[WorkerStatus]):
    """All workers."""

    NAME = "workers"
    NOTHING = "no workers yet"
    COLUMNS = WORKER_COLUMNS
    FILTER = WORKER_FILTER
    COMMANDS: ClassVar[tuple[Command, ...]] = order_commands("workers")

    def values(self, watched: Watched) -> Iterable[WorkerStatus]:
        """Return all workers that are, or are to be."""
        return watched.workers

    def key(self, value: WorkerStatus) -> str:
        """Return a worker's name."""
        return value.name

    def is_old(self, value: WorkerStatus) -> bool:
        """Return whether a worker does not answer."""
        return value.state is WorkerState.SILENT

    def about(self, value: WorkerStatus, width: int, height: int) -> list[Line]:
        """Return the worker whole, and what its GPU did and it printed where room is left."""
        watched = self.screen_app.watched
        assert watched.snapshot is not None
        lines = worker_lines(value, watched.snapshot.taken_at)
        if value.reason:
            return [*lines[:-1], *wrapped(value.reason, width, "bad")]
        free = self.size.height - HEADING - len(self._values) - 1
        room = height if self.has_class("wide") else free
        slot = next((slot for slot in watched.slots if value in slot.workers), None)
        if slot is None or room < len(lines) + LEAST_LINES:
            return lines
        self.screen_app.head.follow_logs()
        left = room - len(lines) - LOG_LINES
        graphs = graph_lines(slot, watched.history, Span.MINUTES_2, width, left)
        log = log_of(watched, slot, value.name)
        return [*graphs, *beneath(lines, log, width, room - len(graphs))]

    def on_table_chosen(self, event: Table.Chosen) -> None:
        """Show the device of the worker that was chosen."""
        event.stop()
        self.screen_app.go_to("device", event.key)
