"""The events view: what happened in the cluster, the newest first, also before we attached."""

from collections.abc import Iterable
from datetime import datetime
from typing import ClassVar

from gputui.snapshot import Event, Severity
from gputui.tui.commands.registry import Command
from gputui.tui.filter import Fields
from gputui.tui.rendering import format as fmt
from gputui.tui.rendering.rows import Field
from gputui.tui.views.listing import Listing, order_commands
from gputui.tui.watched import Watched
from gputui.tui.widgets.table import Table

MARKS = {Severity.INFO: "·", Severity.WARNING: "▴", Severity.ERROR: "✖"}
ROLES = {Severity.INFO: "", Severity.WARNING: "warn", Severity.ERROR: "bad"}


def _role(event: Event) -> str:
    return ROLES[event.severity]


EVENT_FIELDS: tuple[Field[Event], ...] = (
    Field("TIME", 8, 0, lambda e: f"{datetime.fromtimestamp(e.at):%H:%M:%S}", lambda e: "dim"),
    Field("", 1, 0, lambda e: MARKS[e.severity], _role),
    Field("SUBJECT", 20, 0, lambda e: fmt.safe(e.subject), _role, lambda e: e.subject),
    Field("WHAT", 12, 1, lambda e: fmt.safe(e.kind), _role, lambda e: e.kind),
    Field("", 20, 0, lambda e: fmt.safe(e.text)),
)


class EventsView(Listing[Event]):
    """All events that the head kept."""

    NAME = "events"
    FIELDS = EVENT_FIELDS
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

    def on_table_chosen(self, event: Table.Chosen) -> None:
        """Show what the chosen event is about."""
        event.stop()
        chosen, snapshot = self.current, self.screen_app.watched.snapshot
        if chosen is None or snapshot is None:
            return
        subject = chosen.subject.removeprefix("run ")
        if any(worker.name == subject for worker in snapshot.workers):
            self.screen_app.go_to("device", subject)
        elif any(run.id == subject for run in snapshot.runs):
            self.screen_app.go_to("runs", subject)
        elif any(host.name == subject for host in snapshot.hosts):
            self.screen_app.go_to("fleet", subject)
