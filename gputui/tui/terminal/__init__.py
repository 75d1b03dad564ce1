"""Textual's driver with the terminal at both ends: keys and pastes in, changed cells out.

**In.** Textual's parser looks for keys in a paste, too: an escape sequence in it, or one cut short,
comes out as key presses, and a byte that is not UTF-8 ends its input thread (seen in Textual 8.2).
So escapes are taken out of a paste before it is parsed. A key right behind `esc` looks like one
pressed together with alt, which nothing here is bound to: it is taken as the two keys it was.

**Out.** Of a frame only the cells that changed go on (`cells`). What shows nothing (modes,
questions to the terminal, titles, the clipboard) passes as it is; after anything else nothing on
the terminal is taken for granted, and the next frame sends every cell. `tests/tui/test_terminal.py`
fails when Textual writes what is not read here.

Nothing else in `tui` touches what Textual keeps to itself. A release of Textual without one of the
names in `PRIVATE` is refused with a sentence, before anything is drawn.
"""

import contextlib
import os
import re
import select
import signal
import subprocess
import threading
import time
from codecs import getincrementaldecoder
from collections.abc import Iterable, Iterator, Mapping
from pkgutil import resolve_name
from typing import Any

from textual._xterm_parser import XTermParser
from textual.app import App
from textual.constants import ESCAPE_DELAY
from textual.drivers.linux_driver import LinuxDriver
from textual.events import Key, Paste
from textual.message import Message

from gputui.errors import GputuiError
from gputui.model.plain_text import safe
from gputui.tui.rendering.format import to_ascii
from gputui.tui.terminal.cells import Cells

PRIVATE = (
    "textual._xterm_parser:XTermParser.feed",
    "textual._xterm_parser:XTermParser.tick",
    "textual.drivers.linux_driver:LinuxDriver.run_input_thread",
    "textual.drivers.linux_driver:LinuxDriver.write",
)
"""Names below a module, by import."""


def require(names: Iterable[str] = PRIVATE) -> None:
    """Raise GputuiError where this release of Textual lacks one of these."""
    for name in names:
        try:
            resolve_name(name)
        except (ImportError, AttributeError) as error:
            from textual import __version__

            raise GputuiError(
                f"Textual {__version__} has no {name}, which the screen draws "
                "with; install the release that it was tested with: pip install 'textual==8.2.*'"
            ) from error


START, END = "\x1b[200~", "\x1b[201~"
"""Around a paste."""
READ_BYTES = 65_536
LONGEST = 10_000
"""Characters of a paste; nothing on the screen takes more."""
MOST_READ = 4 * LONGEST
"""Characters that are kept of one, with all that is taken out of it."""
QUIET_S = 0.05
"""A paste is over when its end was seen and nothing has come for so long: what a paste holds may
look like its end, and what comes with it was not typed by hand."""
LOST_S = 10.0
"""A paste whose end does not come is over after so much silence."""
LONE = re.compile(r"\x1b(?=[^\[\]OPX^_])")
"""An escape key: not what begins a sequence."""
HANG_UP_S = 3.0
"""For how long a screen may take to end in order once its terminal is gone."""


class Input:
    """Text as it arrives → Textual's messages."""

    def __init__(self) -> None:
        self._parser = XTermParser()
        self._held = ""
        """An escape that came last, or what may begin a paste."""
        self._pasted: str | None = None
        """A paste that has begun."""
        self._fed_at = 0.0

    def feed(self, text: str, now: float) -> Iterator[Message]:
        """Parse text and yield its events."""
        self._fed_at = now
        if self._pasted is None:
            keys, start, text = (self._held + text).partition(START)
            begun = (START[:length] for length in range(len(START) - 1, -1, -1))
            self._held = "" if start else next(each for each in begun if keys.endswith(each))
            yield from self._keys(keys)
            if not start:
                return
            self._pasted = ""
        self._pasted += text
        if len(self._pasted) > MOST_READ:  # its end is near the end of what was read
            self._pasted = self._pasted[: MOST_READ // 2] + self._pasted[-MOST_READ // 2 :]

    def tick(self, now: float) -> Iterator[Message]:
        """Yield the events that a pause completes."""
        quiet_s = now - self._fed_at
        if self._pasted is not None and quiet_s >= (QUIET_S if END in self._pasted else LOST_S):
            text = self._pasted.replace(END, "").replace("\x1b", "").replace("\x00", "")
            self._pasted = None
            yield Paste(text[:LONGEST])
        if self._held and quiet_s >= ESCAPE_DELAY:
            held, self._held = self._held, ""
            yield from [Key("escape", held)] if held == "\x1b" else self._parser.feed(held)
        yield from self._parser.tick()

    def _keys(self, text: str) -> Iterator[Message]:
        """Yield the keys of a text but for what is held, each lone escape as one."""
        for number, part in enumerate(LONE.split(text)):
            if number:
                yield Key("escape", "\x1b")
            if part := part.removesuffix(self._held):  # nothing at all ends the parser
                yield from self._parser.feed(part)


class CellDriver(LinuxDriver):
    """A driver that separates pastes from keys, sends changed cells, ends with its terminal."""

    def __init__(self, app: App[Any], **options: Any) -> None:
        require()
        super().__init__(app, **options)
        self.cells = Cells()

    def run_input_thread(self) -> None:
        """Read the terminal's input until the screen or the terminal ends."""
        arriving, decoder = Input(), getincrementaldecoder("utf-8")(errors="replace")
        while not self.exit_event.is_set():
            messages: list[Message] = []
            if select.select([self.fileno], [], [], QUIET_S)[0]:
                data = b""
                with contextlib.suppress(OSError):
                    data = os.read(self.fileno, READ_BYTES)
                if not data:
                    hang_up()
                    return
                messages += arriving.feed(decoder.decode(data), time.monotonic())
            messages += arriving.tick(time.monotonic())
            for message in messages:
                self.process_message(message)

    def write(self, data: str) -> None:
        """Write the changed cells; on an ASCII screen in ASCII only."""
        if self._app.has_class("-ascii"):
            data = to_ascii(data)
        if sent := self.cells.let_through(data, self._app.size):
            super().write(sent)


def draw_again(app: App[Any]) -> None:
    """Draw every cell, whatever the terminal is thought to show.

    Textual 8.2 draws nothing where the size is again what it was; the terminal may have lost its
    cells on the way there.
    """
    if isinstance(app._driver, CellDriver):
        app._driver.cells.forget()
    app.refresh()


def notify_person(app: App[Any], text: str) -> None:
    """Have the terminal notify the person who sits at it of a text."""
    if app._driver is not None:
        app._driver.write(notification(text, os.environ))


def hang_up() -> None:
    """End this process as SIGHUP does, which not every terminal sends as it goes away.

    What writes to a terminal that is gone may block for ever: the process ends all the same.
    """
    last = threading.Timer(HANG_UP_S, os._exit, (128 + signal.SIGHUP,))
    last.daemon = True
    last.start()
    os.kill(os.getpid(), signal.SIGHUP)


ASK_S = 0.5
VTE_COPIES = 7800
"""No VTE before this one knows OSC 52. Source: https://gitlab.gnome.org/GNOME/vte/-/issues/2495"""


def refuses_copies(environ: Mapping[str, str]) -> str:
    """Return why a terminal with these variables takes no copy, "" where nothing is known.

    OSC 52, which copies, is never acknowledged.

    >>> refuses_copies({"TERM": "linux"}), refuses_copies({"TERM": "xterm-kitty"})
    ('a console has no clipboard', '')
    """
    outer = not environ.get("TMUX") and not environ.get("STY")
    vte = environ.get("VTE_VERSION", "")
    refusals = {
        "a console has no clipboard": environ.get("TERM", "") in ("linux", "vt100", "vt220"),
        "Apple's Terminal takes no copies from programs": (
            environ.get("TERM_PROGRAM") == "Apple_Terminal"
        ),
        "tmux takes no copies from programs (set -s set-clipboard on)": (
            bool(environ.get("TMUX")) and _tmux_copies(environ) in ("off", "external")
        ),
        "GNU screen takes no copies from programs": not outer and not environ.get("TMUX"),
        "this terminal takes no copies from programs": (
            outer and vte.isdecimal() and int(vte) < VTE_COPIES
        ),
    }
    return next((why for why, holds in refusals.items() if holds), "")


def notification(text: str, environ: Mapping[str, str]) -> str:
    r"""Return the sequence by which a terminal notifies of a text; "" for one that cannot.

    OSC 777 is for those that know no other, OSC 9 for all others: who knows neither skips it.

    >>> notification("svd: done", {"TERM": "xterm-kitty"})
    '\x1b]9;gputui: svd: done\x07'
    >>> notification("svd: done", {"TERM": "foot"}), notification("x", {"TERM": "linux"})
    ('\x1b]777;notify;gputui;svd: done\x07', '')
    """
    term, text = environ.get("TERM", ""), safe(text)
    if term in ("linux", "vt100", "vt220"):
        return ""
    if environ.get("VTE_VERSION") or term.startswith(("foot", "rxvt")):
        return f"\x1b]777;notify;gputui;{text.replace(';', ',')}\x07"
    return f"\x1b]9;gputui: {text}\x07"


def _tmux_copies(environ: Mapping[str, str]) -> str:
    """Ask tmux: by default it sets the clipboard itself, and takes nothing from programs."""
    command = ["tmux", "show", "-gsv", "set-clipboard"]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        return subprocess.run(
            command, env=environ, capture_output=True, text=True, timeout=ASK_S
        ).stdout.strip()
    return ""
