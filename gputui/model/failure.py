"""How a run failed: one value from where it arises to where it is shown, handed on whole."""

import traceback
from dataclasses import dataclass, replace

from gputui.model.bounds import Document, Many, Name

MOST_FRAMES = 200
"""Lines of a traceback; the last ones."""
LONGEST_LINE = 1_000
MOST_SHOWN = 2**14
"""Characters of a message in a snapshot; the record of a run has all of them."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A failure with its evidence."""

    type: Name
    """The error's class."""
    message: Document
    hint: Document = ""
    traceback: Many[Document] = ()
    worker: Name = ""
    """The worker that explains it most; "" for none."""
    worker_log: Many[Document] = ()
    """How that worker ended, and its last log lines."""

    @property
    def text(self) -> str:
        r"""The message, and the hint below it.

        >>> Failure("RunError", "too large", "use less").text
        'too large\n  use less'
        """
        return self.message + (f"\n  {self.hint}" if self.hint else "")

    @property
    def shown(self) -> "Failure":
        """The failure as a snapshot has it: a message may hold all of an array."""
        if len(self.message) <= MOST_SHOWN:
            return self
        return replace(self, message=f"{self.message[:MOST_SHOWN]} …")


def frames(error: BaseException | None) -> tuple[str, ...]:
    """Return where an error was raised, without the lines that point at parts of others."""
    if error is None:
        return ()
    lines = "".join(traceback.format_exception(error)).splitlines()
    kept = [line[:LONGEST_LINE] for line in lines if not line.strip() or line.strip(" ~^")]
    return tuple(kept[-MOST_FRAMES:])
