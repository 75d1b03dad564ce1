"""Whether a terminal supports copying: OSC 52 is never acknowledged."""

import contextlib
import subprocess
from collections.abc import Mapping

ASK_S = 0.5


def refusal(environ: Mapping[str, str]) -> str:
    """Return why a terminal with these variables takes no copy, "" where nothing is known.

    >>> refusal({"TERM": "linux"}), refusal({"TERM": "xterm-kitty"})
    ('a console has no clipboard', '')
    """
    if environ.get("TERM", "") in ("linux", "vt100", "vt220"):
        return "a console has no clipboard"
    if environ.get("TERM_PROGRAM") == "Apple_Terminal":
        return "Apple's Terminal takes no copies from programs"
    if environ.get("TMUX"):
        return _tmux(environ)
    if environ.get("STY"):
        return "GNU screen takes no copies from programs"
    if environ.get("VTE_VERSION", "").isdecimal() and int(environ["VTE_VERSION"]) < VTE_COPIES:
        return "this terminal takes no copies from programs"
    return ""


VTE_COPIES = 7800
"""No VTE before this one knows OSC 52. Source: https://gitlab.gnome.org/GNOME/vte/-/issues/2495"""


def _tmux(environ: Mapping[str, str]) -> str:
    """Ask tmux: by default it sets the clipboard itself, and takes nothing from programs."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        command = ["tmux", "show", "-gsv", "set-clipboard"]
        asked = subprocess.run(
            command, env=dict(environ), capture_output=True, text=True, timeout=ASK_S
        )
        if asked.stdout.strip() in ("off", "external"):
            return "tmux takes no copies from programs (set -s set-clipboard on)"
    return ""
