"""The views of hosts, workers, events and users: a table each, with the details of one row."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import ClassVar

from gputui.model.slots import PLACES, SlotState, state_of_worker, wrong_device
from gputui.model.snapshot import (
    Event,
    HostState,
    HostStatus,
    Severity,
    WorkerState,
    WorkerStatus,
)
from gputui.tui.commands import Command
from gputui.tui.filter import Fields
from gputui.tui.rendering import Line, Part, fitted, whole_fields, wrapped
from gputui.tui.rendering import format as fmt
from gputui.tui.rendering.columns import Column, text_column
from gputui.tui.rendering.detail import LEAST_LINES, detail_lines, worker_lines
from gputui.tui.rendering.fleet import Look, Row, host_facts
from gputui.tui.rendering.metrics import HOST_MARKS, state_cell, worker_state
from gputui.tui.rendering.owners import GpuSum, gpu_sums, owner_line
from gputui.tui.views.listing import Listing, order_commands
from gputui.tui.watched import Watched
from gputui.tui.widgets import HEADING

STAGES = tuple(HostState)[:6]
LAST_LINES = 4
"""Last log lines shown of a host."""
UP = 4
"""The urgency of a host that is up; that of one on its way is one less."""


def stage_part(host: HostStatus) -> Part:
    """Return how far a host came: a dot for each stage.

    >>> stage_part(HostStatus("h", HostState.PROBING, 0.0))
    ('●●●◔··', 'accent')
    >>> stage_part(HostStatus("h", HostState.FAILED, 0.0, failed_stage="connecting"))
    ('●✖····', 'bad')
    """
    reached = host.failed_stage if host.state is HostState.FAILED else host.state.value
    names = [stage.value for stage in STAGES]
    done = names.index(reached) if reached in names else 0
    shape, _, role = HOST_MARKS[host.state]
    if host.state not in (*STAGES[:-1], HostState.FAILED):
        return "●" * len(STAGES), role
    return "●" * done + shape + "·" * (len(STAGES) - done - 1), role


def _word(row: Row) -> str:
    return HOST_MARKS[row.host.state][1]


def _why(row: Row) -> str:
    """Return why a host is not up, in a line; the rest is said below the hosts."""
    return fmt.safe(row.host.cause or next(iter(row.host.warnings), ""))


def evidence(host: HostStatus, width: int) -> list[Line]:
    """Describe a host's trouble in full: the reason, the hint, its last lines."""
    shape, word, role = HOST_MARKS[host.state]
    stage = f" while {host.failed_stage}" if host.failed_stage else ""
    lines: list[Line] = [
        [
            (f"{shape} {fmt.safe(host.name)}", role or "title"),
            (f"  {word}{stage}", role),
            (f"  {fmt.safe(host.address)}", "dim"),
        ]
    ]
    lines += wrapped(host.reason, width, "", "  ")
    if not host.failed_stage and (host.devices or host.reading.memory_total_bytes):
        lines.append(whole_fields([(text, "dim") for text in host_facts(host)], width))
    lines += wrapped(f"try: {host.hint}", width, "accent", "  ") if host.hint else []
    for text in (*host.warnings, *host.stderr_tail)[-LAST_LINES:]:
        lines += wrapped(text, width, "dim", "  ")
    return lines


class HostsView(Listing[Row]):
    """The hosts on their way into the cluster."""

    NAME = "hosts"
    NOTHING = "no hosts yet"
    COLUMNS: ClassVar[Sequence[Column[Row]]] = (
        Column(
            "host", "HOST", 14, 0,
            lambda r, width: [(fitted(fmt.safe(r.host.name), width), "title")],
            lambda r: r.host.name, right=False, falling=False, most=24,
        ),
        Column("stages", "STAGES", 6, 0, lambda r, width: [stage_part(r.host)], right=False),
        text_column(
            "STATE", 14, 0, _word,
            lambda r: HOST_MARKS[r.host.state][2], lambda r: r.urgency,
        ),
        text_column(
            "SINCE", 5, 1, lambda r: fmt.age(r.look.now - r.host.state_since), lambda r: "dim",
            lambda r: r.look.now - r.host.state_since, right=True,
        ),
        text_column(
            "WHY", 20, 0, _why, lambda r: "warn" if r.host.reason else "dim", rest=20
        ),
    )  # fmt: skip
    KEY = "key"
    FILTER = Fields(
        everything=lambda r: " ".join(
            (r.host.name, _word(r), r.host.reason, r.host.hint, *r.host.stderr_tail)
        ),
        words={"state": _word, "failed": lambda r: r.host.failed_stage},
        choices={"state": tuple(word for _, word, _ in HOST_MARKS.values())},
    )

    def values(self, watched: Watched) -> Iterable[Row]:
        """Return the hosts: those that failed first, then those on their way."""
        rows = [Row(host, (), Look(watched)) for host in watched.snapshot.hosts]
        return sorted(rows, key=lambda row: row.urgency)

    def about(self, value: Row, width: int, height: int) -> list[Line]:
        """Describe which GPUs it waits for, the host under the cursor, and others that failed."""
        rows = self._values.values()
        others = [row.host for row in rows if row.urgency < UP - 1 and row.key != value.key]
        shown = [value.host, *others]
        queue = self.screen_app.watched.snapshot.lacking.splitlines()
        lines: list[Line] = [[(fitted(fmt.safe(text), width), "warn")] for text in queue]
        return [*lines, *(line for host in shown for line in (*evidence(host, width), ()))][:-1]

    def open(self, value: Row) -> None:
        """Show the host's GPUs."""
        self.screen_app.go_to("fleet", value.key)


UUID_CELLS = 12
"""`GPU-` and eight digits: enough to tell any two devices of a cluster apart."""


def _pin(worker: WorkerStatus) -> str:
    if worker.device_uuid is None or worker.seen_device_uuid is None:
        return fmt.MISSING
    return "✖ elsewhere" if wrong_device(worker) else "pinned"


class WorkersView(Listing[WorkerStatus]):
    """All workers."""

    NAME = "workers"
    NOTHING = "no workers yet"
    COLUMNS: ClassVar[Sequence[Column[WorkerStatus]]] = (
        text_column("WORKER", 20, 0, lambda w: fmt.safe(w.name), sort=lambda w: w.name),
        Column(
            "state", "STATE", 13, 0, lambda w, width: state_cell(worker_state(w), width),
            lambda w: PLACES[state_of_worker(w)], right=False, falling=False,
        ),
        text_column(
            "DEVICE", UUID_CELLS, 5, lambda w: (w.device_uuid or "CPU")[:UUID_CELLS],
            lambda w: "dim",
        ),
        text_column("PIN", 11, 2, _pin, lambda w: "bad" if wrong_device(w) else "dim"),
        text_column("PID", 7, 6, lambda w: fmt.number(w.pid), lambda w: "dim", right=True),
        text_column(
            "CPU", 5, 3, lambda w: fmt.number(w.cpu_percent), sort=lambda w: w.cpu_percent,
            right=True,
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
        text_column("RUN/READY/RESULTS", 17, 2,
            lambda w: "/".join(map(fmt.count, (w.executing, w.ready, w.in_memory))),
            sort=lambda w: w.executing, right=True,
        ),
        text_column("FILES", 5, 9, lambda w: fmt.count(w.open_files), lambda w: "dim", right=True),
        text_column(
            "RST", 3, 1, lambda w: str(w.restarts), lambda w: "warn" if w.restarts else "dim",
            lambda w: w.restarts, right=True,
        ),
        text_column("TASK", 22, 1, lambda w: fmt.safe(w.reason or w.current_task or ""),
                    lambda w: "bad" if w.reason else "dim", rest=22),
    )  # fmt: skip
    FILTER: ClassVar[Fields[WorkerStatus]] = Fields(
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
    COMMANDS: ClassVar[tuple[Command, ...]] = order_commands("workers")

    def values(self, watched: Watched) -> Iterable[WorkerStatus]:
        """Return all workers that are, or are to be."""
        return watched.workers

    def is_old(self, value: WorkerStatus) -> bool:
        """Return whether a worker does not answer."""
        return value.state is WorkerState.SILENT

    def about(self, value: WorkerStatus, width: int, height: int) -> list[Line]:
        """Return the worker, with its GPU in full where room is left."""
        watched = self.screen_app.watched
        lines = worker_lines(value, watched.snapshot.taken_at)
        if value.reason:
            return [*lines[:-1], *wrapped(value.reason, width, "bad")]
        free = self.size.height - HEADING - len(self._values) - 1
        room = height if self.has_class("wide") else free
        slot = next((slot for slot in watched.slots if value in slot.workers), None)
        if slot is None or room < len(lines) + LEAST_LINES:
            return lines
        return detail_lines(watched, slot, self.span, width, room, page=value.name)

    def open(self, value: WorkerStatus) -> None:
        """Show the worker's device."""
        self.screen_app.go_to("device", value.name)


EVENT_MARKS = {
    Severity.INFO: ("·", ""),
    Severity.WARNING: ("▴", "warn"),
    Severity.ERROR: ("✖", "bad"),
}


def _role(event: Event) -> str:
    return EVENT_MARKS[event.severity][1]


class EventsView(Listing[Event]):
    """All events that the head kept, the newest first, also from before we attached."""

    NAME = "events"
    COLUMNS: ClassVar[Sequence[Column[Event]]] = (
        text_column(
            "TIME",
            15,
            0,
            lambda e: f"{datetime.fromtimestamp(e.at):%d %b %H:%M:%S}",
            lambda e: "dim",
        ),
        text_column("", 1, 0, lambda e: EVENT_MARKS[e.severity][0], _role),
        text_column("SUBJECT", 20, 0, lambda e: fmt.safe(e.subject), _role, lambda e: e.subject),
        text_column("WHAT", 12, 0, lambda e: fmt.safe(e.kind), _role, lambda e: e.kind),
        text_column("TEXT", 8, 1, lambda e: fmt.safe(e.text.partition("\n")[0]), rest=20),
    )
    KEY = "sequence"
    FILTER = Fields(
        everything=lambda e: " ".join((e.subject, e.kind, e.severity, e.text)),
        words={
            "severity": lambda e: e.severity.value,
            "kind": lambda e: e.kind,
            "subject": lambda e: e.subject,
        },
        choices={"severity": tuple(Severity)},
    )
    COMMANDS: ClassVar[tuple[Command, ...]] = order_commands("events")

    def values(self, watched: Watched) -> Iterable[Event]:
        """Return the events, the newest first."""
        return reversed(watched.events)

    def about(self, value: Event, width: int, height: int) -> list[Line]:
        """Return the event whole, and where `enter` leads."""
        view = self._leads_to(value)
        return [
            [
                (f"{EVENT_MARKS[value.severity][0]} {value.kind}", _role(value)),
                (f"  {fmt.safe(value.subject)}", "title"),
                (f"  {datetime.fromtimestamp(value.at):%a %d %b %H:%M:%S}", "dim"),
                *([("   enter", "key"), (f" {view}", "dim")] if view else []),
            ],
            *wrapped(value.text, width),
        ]

    def open(self, value: Event) -> None:
        """Go to the subject of the event."""
        if view := self._leads_to(value):
            self.screen_app.go_to(view, value.subject.removeprefix("run "))
        else:
            self.screen_app.say(f"{fmt.safe(value.subject)} is gone")

    def _leads_to(self, event: Event) -> str:
        """Return the view of what an event is about; "" where that is gone."""
        watched, snapshot = self.screen_app.watched, self.screen_app.watched.snapshot
        subject = event.subject.removeprefix("run ")
        if any(subject in (slot.key, *(w.name for w in slot.workers)) for slot in watched.slots):
            return "device"
        if any(subject == host.name for host in snapshot.hosts):
            return "fleet"
        return "runs" if any(subject == run.id for run in snapshot.runs) else ""


class UsersView(Listing[GpuSum]):
    """Everybody who has a GPU, by a claim or a process, and what they have."""

    NAME = "users"
    NOTHING = "nobody has a GPU"
    COLUMNS: ClassVar[Sequence[Column[GpuSum]]] = (
        text_column("USER", 16, 0, lambda u: fmt.safe(u.name), lambda u: "title", lambda u: u.name),
        text_column(
            "GPUS", 5, 0, lambda u: str(len(u.devices)), sort=lambda u: len(u.devices), right=True
        ),
        text_column(
            "MEM", 12, 0, lambda u: fmt.memory(*u.memory_bytes), sort=lambda u: u.memory_bytes[0],
            right=True,
        ),
        text_column(
            "PWR", 8, 0, lambda u: f"{fmt.number(u.power_w)} W", sort=lambda u: u.power_w,
            right=True,
        ),
        text_column(
            "IDLE", 8, 0, lambda u: f"{fmt.age(u.idle_s)}", sort=lambda u: u.idle_s, right=True
        ),
        text_column("ON", 10, 1, lambda u: fmt.by_host([name for name, _ in u.devices]), rest=20),
    )  # fmt: skip
    FILTER = Fields(
        everything=lambda u: f"{u.name} {' '.join(name for name, _ in u.devices)}",
        words={"user": lambda u: u.name},
        numbers={
            "gpus": lambda u: len(u.devices),
            "power": lambda u: u.power_w,
            "idle": lambda u: u.idle_s,
        },
        times=("idle",),
    )
    COMMANDS: ClassVar[tuple[Command, ...]] = order_commands("users")

    def values(self, watched: Watched) -> Iterable[GpuSum]:
        """Return all users, those with the most GPUs first."""
        devices = ((slot.key, slot.device) for slot in watched.slots if slot.device)
        return gpu_sums(devices, watched.snapshot.taken_at)

    def about(self, value: GpuSum, width: int, height: int) -> list[Line]:
        """Describe each GPU that the user has."""
        now = self.screen_app.watched.snapshot.taken_at
        return [
            [(fitted(fmt.safe(name), 16), "title"), *owner_line(device, now)[1:]]
            for name, device in value.devices
        ]

    def open(self, value: GpuSum) -> None:
        """Show the user's GPUs in the fleet."""
        self.screen_app.go_to("fleet", value.devices[0][0])

    def crumbs(self) -> Line:
        """Say how many GPUs are free, too."""
        gpus = [
            slot.state is SlotState.FREE for slot in self.screen_app.watched.slots if slot.device
        ]
        return [*super().crumbs(), (f"  {sum(gpus)} of {fmt.many(len(gpus), 'GPU')} free", "dim")]
