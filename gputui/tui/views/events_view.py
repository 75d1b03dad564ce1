"""The events view: what happened in the cluster, the newest first, also before we attached."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from gputui.model.snapshot import Event, Severity
from gputui.tui.commands.command_registry import Command
from gputui.tui.filter import Fields
from gputui.tui.rendering import format as fmt
from gputui.tui.rendering.columns import Column, text_column
from gputui.tui.rendering.lines import Line, wrapped
from gputui.tui.views.listing import Listing, order_commands
from gputui.tui.watched import Watched
from gputui.tui.widgets.pane import Table


@dataclass(frozen=True, slots=True)
class EventRow:
    """An event as it is seen at a moment."""

    event: Event
    now: float


MARKS = {Severity.INFO: "·", Severity.WARNING: "▴", Severity.ERROR: "✖"}
ROLES = {Severity.INFO: "", Severity.WARNING: "warn", Severity.ERROR: "bad"}


def _role(row: EventRow) -> str:
    return ROLES[row.event.severity]


EVENT_COLUMNS: tuple[Column[EventRow], ...] = (
    text_column("TIME", 12, 0, lambda r: fmt.moment(r.event.at, r.now), lambda r: "dim"),
    text_column("", 1, 0, lambda r: MARKS[r.event.severity], _role),
    text_column(
        "SUBJECT", 20, 0, lambda r: fmt.safe(r.event.subject), _role, lambda r: r.event.subject
    ),
    text_column("WHAT", 12, 0, lambda r: fmt.safe(r.event.kind), _role, lambda r: r.event.kind),
    text_column("TEXT", 8, 1, lambda r: fmt.safe(r.event.text.partition("\n")[0]), rest=20),
)


class EventsView(Listing[EventRow]):
    """All events that the head kept."""

    NAME = "events"
    COLUMNS = EVENT_COLUMNS
    FILTER = Fields(
        everything=lambda r: " ".join(
            (r.event.subject, r.event.kind, r.event.severity, r.event.text)
        ),
        words={
            "severity": lambda r: r.event.severity.value,
            "kind": lambda r: r.event.kind,
            "subject": lambda r: r.event.subject,
        },
        choices={"severity": tuple(Severity)},
    )
    COMMANDS: ClassVar[tuple[Command, ...]] = order_commands("events")

    def values(self, watched: Watched) -> Iterable[EventRow]:
        """Return the events, the newest first."""
        now = self.screen_app.clock()
        return (EventRow(event, now) for event in reversed(watched.events))

    def key(self, value: EventRow) -> str:
        """Return an event's number."""
        return str(value.event.sequence)

    def about(self, value: EventRow, width: int, height: int) -> list[Line]:
        """Return the event whole, and where `enter` leads."""
        event = value.event
        at = datetime.fromtimestamp(event.at)
        view, _ = self._leads_to(event)
        return [
            [
                (f"{MARKS[event.severity]} {event.kind}", _role(value)),
                (f"  {fmt.safe(event.subject)}", "title"),
                (f"  {at:%a %d %b %H:%M:%S}", "dim"),
                *([("   enter", "key"), (f" {view}", "dim")] if view else []),
            ],
            *wrapped(event.text, width),
        ]

    def on_table_chosen(self, event: Table.Chosen) -> None:
        """Go to the subject of the chosen event."""
        event.stop()
        if (chosen := self.current) is None:
            return
        view, key = self._leads_to(chosen.event)
        if view:
            self.screen_app.go_to(view, key)
        else:
            self.screen_app.say(f"{fmt.safe(chosen.event.subject)} is gone")

    def _leads_to(self, event: Event) -> tuple[str, str]:
        """Return the view and the key of what an event is about; "" where that is gone."""
        watched, subject = self.screen_app.watched, event.subject.removeprefix("run ")
        snapshot = watched.snapshot
        if any(subject == slot.key for slot in watched.slots):
            return "device", subject
        if any(subject == worker.name for worker in watched.workers):
            return "device", subject
        if snapshot and any(subject == host.name for host in snapshot.hosts):
            return "fleet", subject
        runs = snapshot.runs if snapshot else ()
        return ("runs", subject) if any(subject == run.id for run in runs) else ("", "")
