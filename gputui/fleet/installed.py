"""Versions of installed distributions, by the names of their metadata folders.

importlib.metadata costs a start 20 ms for the same answer.
"""

import re
import sys
from functools import cache
from pathlib import Path

METADATA = re.compile(r"(?P<name>.+?)-(?P<version>[^-]+)(-py3[^-]*)?\.(dist|egg)-info")


def installed_version(distribution: str) -> str:
    """Return the version of a distribution here, "" where it is not installed."""
    return installed().get(distribution, "")


@cache
def installed() -> dict[str, str]:
    """Return distribution → version for all that is installed here; the first on sys.path wins."""
    found: dict[str, str] = {}
    for folder in reversed(sys.path):
        try:
            entries = [entry.name for entry in Path(folder or ".").iterdir()]
        except OSError:
            continue
        for entry in entries:
            match = METADATA.fullmatch(entry)
            if match:
                found[re.sub(r"[-_.]+", "-", match["name"]).lower()] = match["version"]
    return found
