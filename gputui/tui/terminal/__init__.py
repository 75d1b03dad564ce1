"""Textual's way to the terminal, and the parts of Textual that it uses without being promised them.

`driver` reads keys and pastes, and writes; `cells` finds the cells of a frame that changed. Nothing
else in this package's parent touches what Textual keeps to itself. A release of Textual without
one of the names is refused with a sentence, before anything is drawn.
"""

import contextlib
import subprocess
from collections.abc import Iterable, Mapping
from importlib import import_module, metadata
from operator import attrgetter

from gputui.errors import GputuiError
from gputui.model.plain_text import safe

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
        module, _, path = name.partition(":")
        try:
            attrgetter(path)(import_module(module))
        except (ImportError, AttributeError) as error:
            raise GputuiError(
                f"Textual {metadata.version('textual')} has no {name}, which the screen draws "
                "with; install the release that it was tested with: pip install 'textual==8.2.*'"
            ) from error


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
