"""Tasks with an owner: each ends well, is cancelled, or its owner says what its failure means."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Generic, TypeVar

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

AGAIN_S = 2.0
"""After so long a task that goes on is cancelled again."""
RETRY_S = 1.0
"""After a failure of kept work: before it begins again."""


class Background:
    """The tasks of one owner.

    `failed` is called with the name and the error of each that ends by one: there the owner says
    whether that loses a host, fails a request or ends the cluster.
    """

    def __init__(self, failed: Callable[[str, Exception], None], *, logged: bool = True) -> None:
        """Log each failure with its traceback, unless `failed` says all there is to say."""
        self._failed = failed
        self._logged = logged
        self._running: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, Result], name: str) -> asyncio.Task[Result]:
        """Begin some work; its name is passed to `failed`."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._running.add(task)
        task.add_done_callback(self._ended)
        return task

    def keep(
        self,
        work: Callable[[], Coroutine[Any, Any, None]],
        name: str,
        failing: Callable[[str, Exception], None] | None = None,
    ) -> asyncio.Task[None]:
        """Begin some work, and again each time a cancellation ends it that nobody asked for.

        With `failing`, which is called with its name and the error, it also begins again some time
        after a failure.
        """
        return self.start(_kept(work, name, failing), name)

    def every(
        self,
        interval_s: float,
        work: Callable[[], Awaitable[None] | None],
        name: str,
        failing: Callable[[str, Exception], None] | None = None,
    ) -> None:
        """Do some work at each interval, as long as this owner lives; otherwise as `keep`."""

        async def repeat() -> None:
            while True:
                if (going_on := work()) is not None:
                    await going_on
                await asyncio.sleep(interval_s)

        self.keep(repeat, name, failing)

    async def close(self) -> None:
        """Cancel all that runs, but for the task that calls this, and wait for it."""
        while running := self._running - {asyncio.current_task()}:
            await _cancel(running)
            await asyncio.sleep(0)  # until `_ended` has seen them

    async def finish(self, timeout_s: float) -> None:
        """Wait for what runs, and cancel what goes on after so long."""
        if self._running:
            await asyncio.wait(self._running, timeout=timeout_s)
        await self.close()

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled() and isinstance(error := task.exception(), Exception):
            if self._logged:
                logger.error("%s failed", task.get_name(), exc_info=error)
            self._failed(task.get_name(), error)


async def within(bound_s: float | None, work: Awaitable[object]) -> bool:
    """Wait for some work, for so long at most; return whether it has ended."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(bound_s):
            await work
            return True
    return False


async def together(*works: Coroutine[Any, Any, Any]) -> None:
    """Run coroutines side by side; cancel the others when one fails, and raise its error.

    An `asyncio.TaskGroup` leaves its own task half cancelled when a part fails, up to Python
    3.11.3: `asyncio.timeout` there then ends that task with CancelledError.
    """
    parts = {asyncio.get_running_loop().create_task(work) for work in works}
    left = parts
    try:
        while left:
            done, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
            for part in done:
                part.result()
    finally:
        await _cancel(parts)


async def _kept(
    work: Callable[[], Coroutine[Any, Any, None]],
    name: str,
    failing: Callable[[str, Exception], None] | None,
) -> None:
    while True:
        running = asyncio.get_running_loop().create_task(work(), name=name)
        try:
            await asyncio.wait([running])
        finally:
            await _cancel({running})
        if running.cancelled():
            logger.error("%s was cancelled, and nobody asked for that: it begins again", name)
        elif failing and isinstance(error := running.exception(), Exception):
            failing(name, error)
            await asyncio.sleep(RETRY_S)
        else:
            return running.result()


async def _cancel(tasks: set[asyncio.Task[Any]]) -> None:
    """Cancel tasks and wait for their ends.

    A task may miss a cancellation: in Python 3.11 `asyncio.wait_for` returns in its place where
    what it waits for is done at the same moment.
    """
    while running := {task for task in tasks if not task.done()}:
        for task in running:
            task.cancel()
        await asyncio.wait(running, timeout=AGAIN_S)


class Shared(Generic[Result]):
    """A result that several wait for: the first has it made, once.

    A waiter that is cancelled leaves the work to the others. After a failure, or where the result
    is of no use any more, the next to ask has it made again.
    """

    def __init__(self, usable: Callable[[Result], bool] = lambda result: True) -> None:
        self._usable = usable
        self._task: asyncio.Task[Result] | None = None

    def begin(self, work: Callable[[], Coroutine[Any, Any, Result]]) -> asyncio.Task[Result]:
        """Have it made, unless it is there or being made; `get` returns it."""
        task = self._task
        if not task or (task.done() and (_failed(task) or not self._usable(task.result()))):
            task = self._task = asyncio.get_running_loop().create_task(work())
            task.add_done_callback(_seen)
        return task

    async def get(self, work: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        """Return the result, made by `work` if need be; raises what that raises."""
        return await asyncio.shield(self.begin(work))

    async def close(self) -> Result | None:
        """Cancel work that goes on; return the result that is there."""
        if self._task is None:
            return None
        self._task.cancel()
        await asyncio.wait([self._task])
        return None if _failed(self._task) else self._task.result()


def _failed(task: asyncio.Task[Any]) -> bool:
    return task.cancelled() or task.exception() is not None


def _seen(task: asyncio.Task[Any]) -> None:
    """Have asyncio not report an error that nobody waited for: the next to ask tries again."""
    if not task.cancelled():
        task.exception()


def words(error: Exception) -> str:
    """Describe an unexpected error.

    >>> words(KeyError("a"))
    "KeyError: 'a'"
    """
    return f"{type(error).__name__}: {error}"
