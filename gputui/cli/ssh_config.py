"""The hosts that the user's SSH configuration names, to choose from; asyncssh connects."""

from pathlib import Path

LONGEST = 200
"""Hosts that are offered."""


def named_hosts(path: Path | None = None) -> tuple[str, ...]:
    """Return the names of `Host` lines without patterns, with those of files included."""
    found: dict[str, None] = {}
    _read(path or Path.home() / ".ssh" / "config", found, deep=0)
    return tuple(found)[:LONGEST]


def _read(path: Path, found: dict[str, None], deep: int) -> None:
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return
    for line in lines:
        keyword, *words = line.replace("=", " ", 1).split() or [""]
        if keyword.lower() == "host":
            names = (word.strip('"') for word in words)
            found.update(dict.fromkeys(name for name in names if not set("*?!") & set(name)))
        elif keyword.lower() == "include" and deep < 8:
            for word in words:
                pattern = Path.home() / ".ssh" / Path(word.strip('"')).expanduser()
                for each in sorted(Path("/").glob(str(pattern).lstrip("/"))):
                    _read(each, found, deep + 1)
