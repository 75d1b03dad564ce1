"""A person's choices on the screen, remembered from one session to the next.

A small JSON file in the state folder. One that cannot be read is ignored with a warning, and so are
entries that no longer exist.
"""

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path

import msgspec

from gputui.model.frozen import frozen


@frozen
class Preferences:
    """The choices; "" and () leave it to the screen."""

    theme: str = ""
    columns: tuple[str, ...] = ()
    forms: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """What each preset was run with last, where that was not its default."""
    lines: tuple[str, ...] = ()
    """Lines typed after `:`, the newest last."""


def location(*, simulated: bool = False) -> Path:
    """Return the file: $XDG_STATE_HOME/gputui/screen.json; a demo has one of its own."""
    from gputui.folders import state_folder

    return state_folder() / ("demo.json" if simulated else "screen.json")


def load(path: Path) -> Preferences:
    """Read the remembered preferences; raises OSError, and MsgspecError for any other file."""
    if not path.exists():
        return Preferences()
    return msgspec.json.decode(path.read_bytes(), type=Preferences)


def save(path: Path, preferences: Preferences) -> None:
    """Replace the stored preferences; raises OSError."""
    from gputui.folders import write_whole

    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_whole(path, msgspec.json.encode(preferences))
