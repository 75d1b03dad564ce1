"""Messages that go over more than one link."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LogLines:
    """Lines that workers printed, oldest first: from an agent, then to a frontend."""

    worker: str
    lines: tuple[str, ...]
    at: float
    dropped: int = 0
    """Lines left out before these because they came too fast."""
    earlier: bool = False
    """Whether they were printed before this frontend, or any, wanted them; `at` may be too late."""


@dataclass(frozen=True, slots=True)
class Refused:
    """A request was not carried out, or (request 0) the frontend is turned away."""

    request: int
    reason: str
