"""`python -m tests.soak.day --hours 24`: does a head stay as small as it was?

A real head with a screen on simulated agents, on a clock that jumps to whatever is due next. Prints
the head's resident memory after each simulated hour.
"""

import argparse
import asyncio
import gc
import selectors
import time
from typing import Any

import psutil

from gputui.demo import Shape
from gputui.demo.cluster import Demo

HOUR_S = 3600.0


class Clock(selectors.EpollSelector):
    """Waits for nothing: where no file is ready, the time of the next timer comes at once."""

    def __init__(self) -> None:
        super().__init__()
        self.now = time.monotonic()

    def select(self, timeout: float | None = None) -> list[Any]:
        """Return what is ready; move the clock by the time that a real loop would wait."""
        ready: list[Any] = super().select(0)
        if not ready and timeout:
            self.now += timeout
        return ready


async def rss_by_hour(hours: int, clock: Clock) -> None:
    """Print the resident bytes after each hour, with a screen that looks on."""
    demo = Demo(Shape(2, 4), 1, troubles=False, questions=False, pace=1.0)
    link = await demo.open()
    sizes, snapshots, due = [], 0, clock.now + HOUR_S
    async for message in link.messages():
        snapshots += type(message).__name__ == "SnapshotTaken"
        if clock.now > due:
            due += HOUR_S
            gc.collect()
            sizes.append(psutil.Process().memory_info().rss)
            print(
                f"{len(sizes):3} h {snapshots:8,} snapshots {sizes[-1] / 2**20:8.1f} MiB",
                flush=True,
            )
        if len(sizes) == hours:
            break
    await link.close()


def main() -> None:
    """Play so many hours."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.day")
    parser.add_argument("--hours", type=int, default=24)
    hours = parser.parse_args().hours
    clock = Clock()
    loop = asyncio.SelectorEventLoop(clock)
    offset = time.time() - clock.now
    loop.time = lambda: clock.now  # type: ignore[method-assign]
    time.monotonic = lambda: clock.now
    time.time = lambda: clock.now + offset
    loop.run_until_complete(rss_by_hour(hours, clock))


if __name__ == "__main__":
    main()
