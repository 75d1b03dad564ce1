"""What a fleet needs of the head that runs it."""

from typing import Protocol

from gputui.fleet.stages import Question
from gputui.protocol.shared import LogLines
from gputui.snapshot import Severity


class FleetListener(Protocol):
    """Called for what happens in the fleet; reaches the scheduler and the user for it."""

    def fleet_changed(self) -> None:
        """A state has changed."""

    def tell(self, severity: Severity, subject: str, kind: str, text: str) -> None:
        """Record an event."""

    def worker_restarted(self, name: str) -> None:
        """A worker that had ended was started again."""

    def logs_printed(self, lines: LogLines) -> None:
        """Workers printed something."""

    async def ask(self, host: str, question: Question) -> str | None:
        """Ask a user; None for no."""

    async def retire(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Have the scheduler move what workers hold; returns those that could leave.

        Raises HeadError when there is no scheduler.
        """

    def remove(self, names: tuple[str, ...], reason: str) -> None:
        """Have the scheduler forget workers at once."""
