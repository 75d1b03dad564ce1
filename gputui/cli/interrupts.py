"""SIGINT, SIGTERM and SIGHUP end a command in order: cancelled first, then cleaned up."""

import asyncio
import signal
from collections.abc import Coroutine
from typing import TypeVar

Result = TypeVar("Result")

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run_until_interrupted(work: Coroutine[object, object, Result]) -> Result:
    """Run to the end and return its result.

    Raises KeyboardInterrupt after one of the signals, once what was begun is cleaned up; a
    second signal while that goes on changes nothing. The work is cancelled with the signal's name.
    """
    try:
        return asyncio.run(_guarded(work))
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


async def _guarded(work: Coroutine[object, object, Result]) -> Result:
    loop, task = asyncio.get_running_loop(), asyncio.ensure_future(work)
    interrupted = False

    def interrupt(number: signal.Signals) -> None:
        nonlocal interrupted
        if not interrupted:
            interrupted = True
            task.cancel(number.name)

    for each in SIGNALS:
        loop.add_signal_handler(each, interrupt, each)
    return await task
