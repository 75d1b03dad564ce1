"""Textual's way to the terminal, with a sieve in it that lets only changed cells through."""

import signal
from types import FrameType
from typing import Any

from textual.app import App
from textual.events import Resize
from textual.message import Message

from gputui.tui.keyboard import KeyboardDriver
from gputui.tui.rendering.format import to_ascii
from gputui.tui.rendering.sieve import Sieve


class CellDriver(KeyboardDriver):
    """A driver that remembers what the terminal shows."""

    def __init__(self, app: App[Any], **options: Any) -> None:
        super().__init__(app, **options)
        self._sieve = Sieve()

    def start_application_mode(self) -> None:
        """Take the terminal, and listen to changes of its size."""
        self._sieve.forget()
        super().start_application_mode()  # type: ignore[no-untyped-call]
        told = signal.getsignal(signal.SIGWINCH)

        def resized(number: int, frame: FrameType | None) -> None:
            if callable(told):
                told(number, frame)
            self._draw_again()

        signal.signal(signal.SIGWINCH, resized)

    def process_message(self, message: Message) -> None:
        """Take in what the terminal says, its size too where it tells that by itself."""
        if isinstance(message, Resize):
            self._draw_again()
        super().process_message(message)

    def _draw_again(self) -> None:
        """Draw every cell.

        Textual 8.2 draws nothing where the size is again what it was; the terminal may have lost
        its cells on the way there.
        """
        self._sieve.forget()
        self._loop.call_soon_threadsafe(self._app.refresh)

    def write(self, data: str) -> None:
        """Write what the terminal does not show yet; on an ASCII screen in nothing but ASCII."""
        if self._app.has_class("-ascii"):
            data = to_ascii(data)
        if sent := self._sieve.let_through(data, self._app.size):
            super().write(sent)
