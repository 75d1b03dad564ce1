"""Tasks with an owner: each ends well, is cancelled, or its owner says what its failure means."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

AGAIN_S = 2.0
"""After so long a task that goes on is cancelled again."""


class Tasks:
    """The tasks of one owner.

    `failed` is called with the name and the error of each that ends by one: there the owner says
    whether that loses a host, fails a request or ends the cluster.
    """

    def __init__(self, failed: Callable[[str, Exception], None]) -> None:
        self._failed = failed
        self._running: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, Result], name: str) -> asyncio.Task[Result]:
        """Begin some work; its name is passed to `failed`."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._running.add(task)
        task.add_done_callback(self._ended)
        return task

    async def close(self) -> None:
        """Cancel all that runs, but for the task that calls this, and wait for it.

        A task may miss a cancellation: in Python 3.11 `asyncio.wait_for` returns in its place where
        what it waits for is done at the same moment.
        """
        while running := self._running - {asyncio.current_task()}:
            for task in running:
                task.cancel()
            await asyncio.wait(running, timeout=AGAIN_S)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled() and isinstance(error := task.exception(), Exception):
            logger.error("%s failed", task.get_name(), exc_info=error)
            self._failed(task.get_name(), error)


def words(error: Exception) -> str:
    """Describe an unexpected error.

    >>> words(KeyError("a"))
    "KeyError: 'a'"
    """
    return f"{type(error).__name__}: {error}"
