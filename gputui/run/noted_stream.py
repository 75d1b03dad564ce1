"""A stream whose lines are noted, too, as in the log of a run."""

import io
from collections.abc import Callable
from typing import Any, TextIO


class NotedStream(io.TextIOBase):
    """Writes to `stream`, and calls `note` with the lines, an unfinished one as it is closed.

    >>> stream, noted = io.StringIO(), []
    >>> with NotedStream(stream, lambda *lines: noted.extend(lines)) as both:
    ...     print("a", "b", file=both)
    ...     print("half", end="", file=both)
    >>> stream.getvalue(), noted
    ('a b\\nhalf', ['a b', 'half'])
    """

    def __init__(self, stream: TextIO, note: Callable[..., None]) -> None:
        self._stream = stream
        self._note = note
        self._begun = ""

    def __getattr__(self, name: str) -> Any:
        """Be in all else as the stream: its file number, its buffer."""
        return getattr(self._stream, name)

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """The stream's."""
        return self._stream.encoding

    def isatty(self) -> bool:
        """Return whether the stream is a terminal."""
        return self._stream.isatty()

    def fileno(self) -> int:
        """Return the stream's file number."""
        return self._stream.fileno()

    def flush(self) -> None:
        """Flush the stream."""
        self._stream.flush()

    def write(self, text: str) -> int:
        """Write a text."""
        *lines, self._begun = (self._begun + text).split("\n")
        if lines:
            self._note(*lines)
        return self._stream.write(text)

    def close(self) -> None:
        """Note what no line ended; the stream stays open."""
        if self._begun:
            self._note(self._begun)
            self._begun = ""
