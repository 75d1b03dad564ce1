"""Textual's way to the terminal, with only the cells that changed going down it.

`ScreenApp` uses it wherever there is a terminal. What is no frame (modes, titles, the clipboard)
passes as it is. After another size, or another program on the terminal, every cell is sent.
"""

import signal
from types import FrameType

from textual.drivers.linux_driver import LinuxDriver
from textual.events import Resize
from textual.message import Message

from gputui.tui.cells import Cells

SYNC_START, SYNC_END = "\x1b[?2026h", "\x1b[?2026l"
"""Around a frame, where the terminal shows it at once.
Source: https://gist.github.com/christianparpart/d8a62cc1ab659194337d73e399004036"""


class CellDriver(LinuxDriver):
    """A driver that remembers what the terminal shows."""

    _cells = Cells(0, 0)
    _stale = False
    """Whether the terminal may show something else by now."""
    _held_back = ""
    """The mark before a frame, until it is known that there is something to show."""

    def start_application_mode(self) -> None:
        """Take the terminal, and listen to changes of its size."""
        self._stale = True
        super().start_application_mode()  # type: ignore[no-untyped-call]
        told = signal.getsignal(signal.SIGWINCH)

        def resized(number: int, frame: FrameType | None) -> None:
            self._stale = True
            if callable(told):
                told(number, frame)

        signal.signal(signal.SIGWINCH, resized)

    def process_message(self, message: Message) -> None:
        """Take in what the terminal says, its size too where it tells that by itself."""
        self._stale = self._stale or isinstance(message, Resize)
        super().process_message(message)

    def write(self, data: str) -> None:
        """Write a frame's changes, or anything else as it is."""
        if data == SYNC_START:
            self._held_back = data
        elif data == SYNC_END and self._held_back:
            self._held_back = ""
        elif sent := self._changes(data):
            super().write(self._held_back + sent)
            self._held_back = ""

    def _changes(self, data: str) -> str:
        if self._cells.size != (size := tuple(self._app.size)):
            self._cells = Cells(*size)
        if not self._cells.take(data):
            return data
        if self._stale:
            self._stale = False
            self._cells.forget()
        return self._cells.changes()
