"""The events view: what happened in the cluster, the newest first, also before we attached."""

from collections.abc import Iterable
from datetime import datetime
from typing import ClassVar

from gputui.snapshot import Event, Severity
from gputui.tui.commands.command_registry import Command
from gputui.tui.filter import Fields
from gputui.tui.rendering import format as fmt
from gputui.tui.rendering.columns import Column, text_column
from gputui.tui.rendering.lines import Line, wrapped
from gputui.tui.views.listing import Listing, order_commands
from gputui.tui.watched import Watched
from gputui.tui.widgets.table import Table

MARKS = {Severity.INFO: "·", Severity.WARNING: "▴", Severity.ERROR: "✖"}
ROLES = {Severity.INFO: "", Severity.WARNING: "warn", Severity.ERROR: "bad"}


def _role(event: Event) -> str:
    return ROLES[event.severity]


def _time(event: Event) -> str:
    at = datetime.fromtimestamp(event.at)
    return f"{at:%H:%M:%S}" if at.date() == datetime.now().date() else f"{at:%d %b %H:%M}"


EVENT_COLUMNS: tuple[Column[Event], ...] = (
    text_column("TIME", 12, 0, _time, lambda e: "dim"),
    text_column("", 1, 0, lambda e: MARKS[e.severity], _role),
    text_column("SUBJECT", 20, 0, lambda e: fmt.safe(e.subject), _role, lambda e: e.subject),
    text_column("WHAT", 12, 1, lambda e: fmt.safe(e.kind), _role, lambda e: e.kind),
    text_column("TEXT", 20, 0, lambda e: fmt.safe(e.text.partition("\n")[0]), rest=20),
)


class EventsView(Listing[Event]):
    """All events that the head kept."""

    NAME = "events"
    COLUMNS = EVENT_COLUMNS
    FILTER = Fields(
        everything=lambda e: f"{e.subject} {e.kind} {e.severity} {e.text}",
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

    def key(self, value: Event) -> str:
        """Return an event's number."""
        return str(value.sequence)

    def about(self, value: Event, width: int, height: int) -> list[Line]:
        """Return the event whole, and where `enter` leads."""
        at = datetime.fromtimestamp(value.at)
        view, _ = self._leads_to(value)
        return [
            [
                (f"{MARKS[value.severity]} {value.kind}", _role(value)),
                (f"  {fmt.safe(value.subject)}", "title"),
                (f"  {at:%a %d %b %H:%M:%S}", "dim"),
                *([("   enter", "key"), (f" {view}", "dim")] if view else []),
            ],
            *wrapped(value.text, width),
        ]

    def on_table_chosen(self, event: Table.Chosen) -> None:
        """Show what the chosen event is about."""
        event.stop()
        if (chosen := self.current) is None:
            return
        view, key = self._leads_to(chosen)
        if view:
            self.screen_app.go_to(view, key)
        else:
            self.screen_app.say(f"{fmt.safe(chosen.subject)} is not there any more")

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
