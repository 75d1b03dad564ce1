"""What a terminal sends: keys, and pastes, which never run as keys whatever bytes they hold.

Textual's parser looks for keys in a paste, too: an escape sequence in it, or one cut short, comes
out as key presses, and a byte that is not UTF-8 ends its input thread (seen in Textual 8.2). So
pastes are taken out of the stream before it is parsed.
"""

import os
import selectors
import time
from codecs import getincrementaldecoder
from collections.abc import Iterator

from textual._xterm_parser import BRACKETED_PASTE_END as END
from textual._xterm_parser import BRACKETED_PASTE_START as START
from textual._xterm_parser import XTermParser
from textual.drivers.linux_driver import LinuxDriver
from textual.events import Paste
from textual.message import Message

READ_BYTES = 65_536
LONGEST = 10_000
"""Characters of a paste; nothing on the screen takes more."""
QUIET_S = 0.05
"""A paste is over when its end was seen and nothing has come for so long: what a paste holds may
look like its end, and what comes with it was not typed by hand."""
LOST_S = 10.0
"""A paste whose end does not come is over after so much silence."""
LOOK_S = 0.1


class Input:
    """Text as it arrives → Textual's messages."""

    def __init__(self) -> None:
        self._parser = XTermParser()
        self._pasted: list[str] | None = None
        """What has come of a paste; None while there is none."""
        self._size = 0
        self._tail = ""
        """The end of what came last: the beginning of a mark, perhaps."""
        self._fed_at = 0.0
        self._ended = False
        """Whether the paste's end was seen."""

    @property
    def waits_s(self) -> float:
        """For how long to wait for more before `tick`."""
        return QUIET_S if self._pasted is not None or self._tail else LOOK_S

    def feed(self, text: str, now: float) -> Iterator[Message]:
        """Take text in, and yield what it says."""
        self._fed_at = now
        if self._pasted is not None:
            self._take(text)
            return
        before, start, pasted = (self._tail + text).partition(START)
        self._tail = "" if start else _begun(before, START)
        yield from self._keys(before.removesuffix(self._tail) if self._tail else before)
        if start:
            self._pasted, self._size = [], 0
            self._take(pasted)

    def _take(self, text: str) -> None:
        """Keep as much of a paste as is wanted, and look for its end."""
        seen = self._tail + text
        self._ended = self._ended or END in seen
        self._tail = seen[-len(END) + 1 :]
        if self._pasted is not None and self._size < LONGEST:
            self._pasted.append(text[: LONGEST - self._size])
            self._size += len(text)

    def tick(self, now: float) -> Iterator[Message]:
        """Yield what is clear now that nothing more has come."""
        quiet_s = now - self._fed_at
        if self._pasted is not None:
            if quiet_s >= (QUIET_S if self._ended else LOST_S):
                text = "".join(self._pasted).replace(END, "").replace("\x00", "")
                self._pasted, self._ended, self._tail = None, False, ""
                yield Paste(text)
            return
        if self._tail and quiet_s >= QUIET_S:
            tail, self._tail = self._tail, ""
            yield from self._keys(tail)
        yield from self._parser.tick()

    def _keys(self, text: str) -> Iterator[Message]:
        return iter(self._parser.feed(text)) if text else iter(())


def _begun(text: str, mark: str) -> str:
    r"""Return the longest end of a text that a mark may begin with.

    >>> _begun("x\x1b[20", START), _begun("x\x1b[A", START)
    ('\x1b[20', '')
    """
    lengths = range(min(len(text), len(mark) - 1), 0, -1)
    return next((text[-n:] for n in lengths if mark.startswith(text[-n:])), "")


class KeyboardDriver(LinuxDriver):
    """A driver that takes pastes out of what is typed."""

    def run_input_thread(self) -> None:
        """Read what the terminal sends until the screen ends."""
        arriving, decoder = Input(), getincrementaldecoder("utf-8")(errors="replace")
        with selectors.DefaultSelector() as selector:
            selector.register(self.fileno, selectors.EVENT_READ)
            while not self.exit_event.is_set():
                messages: list[Message] = []
                if selector.select(arriving.waits_s):
                    data = os.read(self.fileno, READ_BYTES)
                    messages += arriving.feed(decoder.decode(data), time.monotonic())
                    if not data:  # the terminal is gone; SIGHUP says so
                        self.exit_event.wait(LOOK_S)
                messages += arriving.tick(time.monotonic())
                for message in messages:
                    self.process_message(message)
