"""A stream whose lines are noted, too, as in the log of a run."""

import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any, TextIO

LONGEST = 2**16
"""Characters that are noted of a line: a bar of dots may never end."""


class NotedStream:
    r"""Writes to `stream`, and calls `note` with the lines; in all else it is the stream.

    Each thread has a line of its own that it has begun, so that `print` in one does not cut that of
    another. A line is noted as a terminal would show it: without what `\r` wrote over.

    >>> import io
    >>> stream, noted = io.StringIO(), []
    >>> both = NotedStream(stream, lambda *lines: noted.extend(lines))
    >>> print("a", "b", file=both)
    >>> print("10 %\r20 %", end="", file=both)
    >>> both.finish()
    >>> stream.getvalue(), noted
    ('a b\n10 %\r20 %', ['a b', '20 %'])
    """

    def __init__(self, stream: TextIO, note: Callable[..., None]) -> None:
        self._stream = stream
        self._note = note
        self._begun: dict[int, _Line] = {}
        """By thread."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __reduce__(self) -> tuple[Callable[[], TextIO], tuple[()]]:
        """Be, in a task, the standard output there, as cloudpickle has it of `sys.stdout`."""
        return _stdout, ()

    def write(self, text: str) -> int:
        """Write a text."""
        line = self._begun.setdefault(threading.get_ident(), _Line())
        first, *others = text.split("\n")
        line.add(first)
        if others:
            *whole, begun = others
            self._note(line.end(), *(_shown(each)[:LONGEST] for each in whole))
            line.add(begun)
        return self._stream.write(text)

    def writelines(self, texts: Iterable[str]) -> None:
        """Write texts."""
        for text in texts:
            self.write(text)

    def finish(self) -> None:
        """Note the lines that were begun; the stream stays open."""
        for line in self._begun.values():
            if line.pieces:
                self._note(line.end())


class _Line:
    """A line that is not ended yet."""

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self._room = LONGEST

    def add(self, text: str) -> None:
        """Append, or overwrite the present content."""
        shown = text.rstrip("\r")
        returned = bool(self.pieces) and self.pieces[-1].endswith("\r")
        if "\r" in shown or (shown and returned):
            self.end()
            text = text[shown.rfind("\r") + 1 :]
        if text and self._room > 0:
            self.pieces.append(text[: self._room])
            self._room -= len(text)

    def end(self) -> str:
        """Return the line as it is shown, and begin another."""
        text = "".join(self.pieces)
        self.pieces.clear()
        self._room = LONGEST
        return _shown(text)


def _shown(line: str) -> str:
    return line.rstrip("\r").rpartition("\r")[2]


def _stdout() -> TextIO:
    return sys.stdout
