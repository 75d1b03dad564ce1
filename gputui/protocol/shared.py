"""Messages of more than one channel."""

from dataclasses import dataclass, replace
from typing import ClassVar, Self

from gputui.protocol.delivery import Delivery


@dataclass(frozen=True, slots=True)
class LogLines:
    """Lines that workers printed, oldest first: from an agent, then to a frontend."""

    delivery: ClassVar[Delivery] = Delivery.FLOOD

    worker: str
    lines: tuple[str, ...]
    at: float
    dropped: int = 0
    """Lines left out before these because they came too fast."""
    earlier: bool = False
    """Whether they were printed before this frontend, or any, wanted them; `at` may be too late."""

    @property
    def delivery_key(self) -> str:
        """What is left out is counted for each worker."""
        return self.worker

    def left_out(self) -> Self:
        """Return this without its lines, which are counted as dropped."""
        return replace(self, lines=(), dropped=self.dropped + len(self.lines))

    def after(self, left_out: Self) -> Self:
        """Return this with the count of what was left out before it."""
        return replace(self, dropped=self.dropped + left_out.dropped)


@dataclass(frozen=True, slots=True)
class Refused:
    """A request was not carried out, or (request 0) the frontend is turned away."""

    request: int
    reason: str
