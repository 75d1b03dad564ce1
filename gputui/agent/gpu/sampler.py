"""A function called again and again in a thread of its own, and the last value it gave.

Whatever may hang (NVML, a network file system) is asked in such a thread, so that a reader of
the value never waits for it.
"""

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Sampler(Generic[T]):
    """Calls `sample` every `interval_s` seconds in a daemon thread, from `start` to `stop`."""

    def __init__(self, sample: Callable[[], T], first: T, interval_s: float, name: str) -> None:
        self._sample = sample
        self._last = (time.monotonic(), first)
        self._interval_s = interval_s
        self._ended = threading.Event()
        self._sampled = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin; the first sample is taken at once."""
        self._thread.start()

    def stop(self, timeout_s: float) -> bool:
        """End, waiting at most `timeout_s` for a sample under way; return whether it ended."""
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def wait(self, timeout_s: float) -> bool:
        """Wait until a first sample was taken; return whether it was within `timeout_s`."""
        return self._sampled.wait(timeout_s)

    @property
    def value(self) -> T:
        """The last sample, or `first` before one was taken."""
        return self._last[1]

    @property
    def age_s(self) -> float:
        """Seconds since that sample was taken."""
        return time.monotonic() - self._last[0]

    def _run(self) -> None:
        while not self._ended.is_set():
            value = self._sample()
            self._last = (time.monotonic(), value)
            self._sampled.set()
            self._ended.wait(self._interval_s)
