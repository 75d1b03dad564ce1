"""The way by which the last value came from another worker: reported by preset `transfer`."""

from enum import StrEnum


class Way(StrEnum):
    """The ways of a value from worker to worker."""

    CONNECTION = "connection"
    """As bytes over Dask's comm."""
    MEMORY_FILE = "memory file"
    DEVICE = "device"
    """By a CUDA IPC handle."""


_last = Way.CONNECTION


def last() -> Way:
    """Return which way the last value came."""
    return _last


def came(way: Way) -> None:
    """Note which way a value comes."""
    global _last
    _last = way
