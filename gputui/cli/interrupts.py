"""SIGINT, SIGTERM and SIGHUP end a command in order: cancelled first, then cleaned up.

One that is ignored from the start, as by nohup, stays so. asyncio is imported with the first
work, not before: usage errors wait for nothing.
"""

import signal
from collections.abc import Coroutine
from typing import TypeVar

Result = TypeVar("Result")

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def interrupt_on_signals() -> None:
    """Have each of the signals raise KeyboardInterrupt as long as no work has begun."""
    for each in SIGNALS:
        if signal.getsignal(each) is signal.SIG_DFL:
            signal.signal(each, signal.default_int_handler)


def ignore_signals() -> None:
    """Ignore the signals from now on: the rest takes no time.

    Called in the event loop, which would else give them back their old meaning as it closes.
    """
    import asyncio

    for each in SIGNALS:
        asyncio.get_running_loop().remove_signal_handler(each)
        signal.signal(each, signal.SIG_IGN)


def run_until_interrupted(work: Coroutine[object, object, Result]) -> Result:
    """Run to the end and return its result.

    Raises KeyboardInterrupt after one of the signals, once what was begun is cleaned up; a
    second signal while that goes on changes nothing. The work is cancelled with the signal's name.
    """
    import asyncio

    try:
        return asyncio.run(_guarded(work))
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


async def _guarded(work: Coroutine[object, object, Result]) -> Result:
    import asyncio

    loop, task = asyncio.get_running_loop(), asyncio.ensure_future(work)
    interrupted = False

    def interrupt(number: signal.Signals) -> None:
        nonlocal interrupted
        if not interrupted:
            interrupted = True
            task.cancel(number.name)

    for each in SIGNALS:
        if signal.getsignal(each) is not signal.SIG_IGN:
            loop.add_signal_handler(each, interrupt, each)
    return await task
