"""Textual's driver with the terminal at both ends: keys and pastes in, changed cells out.

**In.** Textual's parser looks for keys in a paste, too: an escape sequence in it, or one cut short,
comes out as key presses, and a byte that is not UTF-8 ends its input thread (seen in Textual 8.2).
So escapes are taken out of a paste before it is parsed. A key right behind `esc` looks like one
pressed together with alt, which nothing here is bound to: it is taken as the two keys it was.

**Out.** Of a frame only the cells that changed go on. What shows nothing (modes, questions to the
terminal, titles, the clipboard) passes as it is; after anything else nothing on the terminal is
taken for granted, and the next frame sends every cell. `tests/tui/test_differ.py` fails when
Textual writes what is not read here.
"""

import os
import re
import selectors
import signal
import threading
import time
from codecs import getincrementaldecoder
from collections.abc import Iterator
from types import FrameType
from typing import Any, TextIO, cast

from textual._xterm_parser import BRACKETED_PASTE_END as END
from textual._xterm_parser import BRACKETED_PASTE_START as START
from textual._xterm_parser import XTermParser
from textual.app import App
from textual.constants import ESCAPE_DELAY
from textual.drivers.linux_driver import LinuxDriver
from textual.events import Key, Resize
from textual.message import Message

from gputui.tui.rendering.format import to_ascii
from gputui.tui.terminal import ATTRIBUTES, refuse, require
from gputui.tui.terminal.cells import Cells

READ_BYTES = 65_536
LONGEST = 10_000
"""Characters of a paste; nothing on the screen takes more."""
QUIET_S = 0.05
"""A paste is over when its end was seen and nothing has come for so long: what a paste holds may
look like its end, and what comes with it was not typed by hand."""
LOST_S = 10.0
"""A paste whose end does not come is over after so much silence."""
LONE = re.compile(r"\x1b(?=[^\[\]OPX^_])")
"""An escape key: not what begins a sequence."""
HANG_UP_S = 3.0
"""For how long a screen may take to end in order once its terminal is gone."""
WITHOUT_SIZE = (80, 24)
"""The size of a terminal that does not say."""


class Input:
    """Text as it arrives → Textual's messages."""

    def __init__(self) -> None:
        self._parser = XTermParser()
        self._tail = ""
        """The end of what came last, in which a paste may begin or end."""
        self._room: int | None = None
        """Characters that a paste may still have; None outside a paste."""
        self._ended = False
        """Whether the paste's end was seen."""
        self._escape = ""
        """An escape that came last: a key, or the beginning of a sequence."""
        self._fed_at = 0.0

    def feed(self, text: str, now: float) -> Iterator[Message]:
        """Parse text and yield its events."""
        self._fed_at = now
        seen = self._tail + text
        if self._room is None:
            begin = seen.find(START) + len(START)
            if begin < len(START):
                self._tail = seen[-len(START) + 1 :]
                yield from self._keys(text)
                return
            yield from self._keys(text[: begin - len(self._tail)])
            self._room, seen = LONGEST, seen[begin:]
        self._ended = self._ended or END in seen
        seen = seen.replace(END, "")
        self._tail = seen[-len(END) + 1 :]
        self._paste(seen.removesuffix(self._tail))

    def _paste(self, text: str) -> None:
        """Hand on the characters of a paste, as far as it may have more."""
        pasted = text.replace("\x1b", "").replace("\x00", "")[: self._room]
        self._room = (self._room or 0) - len(pasted)
        if pasted:
            assert not list(self._parser.feed(pasted))

    def tick(self, now: float) -> Iterator[Message]:
        """Yield the events that a pause completes."""
        quiet_s = now - self._fed_at
        if self._room is not None and quiet_s >= (QUIET_S if self._ended else LOST_S):
            self._paste(self._tail)
            self._room, self._tail, self._ended = None, "", False
            yield from self._parser.feed(END)
        if self._escape and quiet_s >= ESCAPE_DELAY:
            self._escape = ""
            yield Key("escape", "\x1b")
        yield from self._parser.tick()

    def _keys(self, text: str) -> Iterator[Message]:
        """Yield the keys of a text, each escape that stands for itself as one."""
        text = self._escape + text
        self._escape = "\x1b" if text.endswith("\x1b") else ""
        for number, part in enumerate(LONE.split(text)):
            if number:
                yield Key("escape", "\x1b")
            if part := part.removesuffix(self._escape):  # nothing at all ends the parser
                yield from self._parser.feed(part)


class KeyboardDriver(LinuxDriver):
    """A driver that separates pastes from typed keys, and ends with its terminal."""

    def _get_terminal_size(self) -> tuple[int, int]:
        """Return the size of the terminal that is drawn to.

        Textual 8.2 believes COLUMNS and LINES, which a shell may export and readline sets.
        """
        try:
            columns, lines = os.get_terminal_size(cast("TextIO", self._file).fileno())
        except OSError:
            return WITHOUT_SIZE
        return columns or WITHOUT_SIZE[0], lines or WITHOUT_SIZE[1]

    def run_input_thread(self) -> None:
        """Read the terminal's input until the screen or the terminal ends."""
        arriving, decoder = Input(), getincrementaldecoder("utf-8")(errors="replace")
        with selectors.DefaultSelector() as selector:
            selector.register(self.fileno, selectors.EVENT_READ)
            while not self.exit_event.is_set():
                messages: list[Message] = []
                if selector.select(QUIET_S):
                    data = self._read()
                    if not data:
                        hang_up()
                        return
                    messages += arriving.feed(decoder.decode(data), time.monotonic())
                messages += arriving.tick(time.monotonic())
                for message in messages:
                    self.process_message(message)

    def _read(self) -> bytes:
        """Read typed bytes; b"" if the terminal is gone."""
        try:
            return os.read(self.fileno, READ_BYTES)
        except OSError:
            return b""


def hang_up() -> None:
    """End this process as SIGHUP does, which not every terminal sends as it goes away.

    What writes to a terminal that is gone may block for ever: the process ends all the same.
    """
    last = threading.Timer(HANG_UP_S, os._exit, (128 + signal.SIGHUP,))
    last.daemon = True
    last.start()
    os.kill(os.getpid(), signal.SIGHUP)


SYNC_START, SYNC_END = "\x1b[?2026h", "\x1b[?2026l"
"""Around a frame, where the terminal shows it at once.
Source: https://gist.github.com/christianparpart/d8a62cc1ab659194337d73e399004036"""
SHOWS_NOTHING = re.compile(
    r"(?:\x1b\[[?<>=][\d;]*\$?[A-Za-z]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x07)*"
)
"""Private modes and questions, operating system commands, the bell."""


class Sieve:
    """Passes on only the cells that a terminal does not show yet."""

    def __init__(self) -> None:
        self._cells = Cells(0, 0)
        self._known = False
        """Whether the terminal shows the last frame, as far as is known."""
        self._held_back = ""
        """The mark before a frame, until it is known that there is something to show."""

    def forget(self) -> None:
        """Take nothing on the terminal for granted, as after another size."""
        self._known = False

    def let_through(self, data: str, size: tuple[int, int]) -> str:
        """Return the part of this output for a terminal of so many columns and lines."""
        if data == SYNC_START:
            self._held_back = data
            return ""
        if data == SYNC_END and self._held_back:
            self._held_back = ""
            return ""
        sent = self._sent(data, size)
        if sent:
            sent, self._held_back = self._held_back + sent, ""
        return sent

    def _sent(self, data: str, size: tuple[int, int]) -> str:
        if self._cells.size != size:
            self._cells = Cells(*size)
        if not self._cells.take(data):
            self._known = self._known and bool(SHOWS_NOTHING.fullmatch(data))
            return data
        if not self._known:
            self._known = True
            self._cells.forget()
        return self._cells.changes()


class CellDriver(KeyboardDriver):
    """A driver that remembers the terminal's cells."""

    def __init__(self, app: App[Any], **options: Any) -> None:
        require()
        super().__init__(app, **options)
        for name in ATTRIBUTES:
            if not hasattr(self, name):
                refuse(f"LinuxDriver.{name}")
        self._sieve = Sieve()

    def start_application_mode(self) -> None:
        """Take the terminal, and listen to changes of its size."""
        self._sieve.forget()
        super().start_application_mode()  # type: ignore[no-untyped-call]
        handler = signal.getsignal(signal.SIGWINCH)

        def resized(number: int, frame: FrameType | None) -> None:
            if callable(handler):
                handler(number, frame)
            self._draw_again()

        signal.signal(signal.SIGWINCH, resized)

    def process_message(self, message: Message) -> None:
        """Process the terminal's input, including size reports."""
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
        """Write the changed cells; on an ASCII screen in ASCII only."""
        if self._app.has_class("-ascii"):
            data = to_ascii(data)
        if sent := self._sieve.let_through(data, self._app.size):
            super().write(sent)
