"""A run's request: what to compute, and on how much of a cluster."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class RunRequest:
    """A preset or a script with its parameters, and what it needs of a cluster."""

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
