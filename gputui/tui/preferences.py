"""A person's choices on the screen, remembered from one session to the next.

A small JSON file in the state folder. One that cannot be read is ignored with a warning, and so are
entries that no longer exist.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

DEMO_FILE = "demo.json"
LISTS = ("columns", "lines", "pressed")


@dataclass(frozen=True, slots=True)
class Preferences:
    """The choices; "" and () leave it to the screen."""

    theme: str = ""
    zoom: str = ""
    columns: tuple[str, ...] = ()
    forms: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """What each preset was run with last, where that was not its default."""
    lines: tuple[str, ...] = ()
    """Lines typed after `:`, the newest last."""
    pressed: tuple[str, ...] = ()
    """Hints that are not needed any more: their keys were pressed."""


def location(*, simulated: bool = False) -> Path:
    """Return the file: $XDG_STATE_HOME/gputui/screen.json; a demo has one of its own."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "gputui" / (DEMO_FILE if simulated else "screen.json")


def load(path: Path) -> Preferences:
    """Read the remembered preferences; raises OSError, and ValueError for any other file."""
    if not path.exists():
        return Preferences()
    try:
        known = json.loads(path.read_text(encoding="utf-8"))
        forms = {
            str(preset): {str(name): str(text) for name, text in texts.items()}
            for preset, texts in known.get("forms", {}).items()
        }
        words = {name: tuple(map(str, known.get(name, ()))) for name in LISTS}
        return Preferences(str(known["theme"]), str(known["zoom"]), forms=forms, **words)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError("not a file of this version") from error


def save(path: Path, preferences: Preferences) -> None:
    """Replace the stored preferences; raises OSError."""
    from gputui.folders import write_whole

    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_whole(path, json.dumps(asdict(preferences)).encode())


class Remembered:
    """The choices of a session, kept in a file; without one, as long as the session."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self.now = Preferences()
        self.trouble = ""
        """Why nothing is remembered, where something was."""
        if path is not None:
            try:
                self.now = load(path)
            except (OSError, ValueError) as error:
                self.trouble = f"{path}: choices not read: {error}"

    def of_demo(self) -> "Remembered":
        """Return the choices of demos, kept in a file of their own."""
        return Remembered(self._path and self._path.with_name(DEMO_FILE))

    def change(self, **chosen: Any) -> None:
        """Choose otherwise; raises OSError when it cannot be kept."""
        self.now = replace(self.now, **chosen)
        if self._path is not None:
            save(self._path, self.now)
