"""A run's request: what to compute, and on how much of a cluster."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gputui.presets.registry import located


@dataclass(frozen=True, slots=True)
class RunRequest:
    """A preset or a script with its parameters, and its requirements of a cluster."""

    name: str
    """The preset or the script, as it was typed."""
    parameters: Mapping[str, Any]
    given: tuple[tuple[str, str], ...]
    """The parameters as they were typed, for the head and for display."""
    backend: str
    hosts: str
    """As they were given, for the record."""
    workers: int | None
    min_workers: int
    as_json: bool = False
    quiet: bool = False

    @property
    def located(self) -> str:
        """The name by which the same is found from every working directory."""
        if is_script(self.name):
            return str(Path(self.name).expanduser().resolve())
        return located(self.name)


def is_script(name: str) -> bool:
    """Return whether a run's name is a script's; a preset in a file has its name behind a colon.

    >>> is_script("train.py"), is_script("mine.py:PRESET"), is_script("svd")
    (True, False, False)
    """
    return name.endswith(".py")
