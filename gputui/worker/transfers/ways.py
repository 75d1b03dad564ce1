"""Which way the last value came that another worker had: what the preset `transfer` reports."""

from enum import StrEnum


class Way(StrEnum):
    """How a value gets from worker to worker."""

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
