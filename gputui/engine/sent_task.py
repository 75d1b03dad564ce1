"""A task on its way from the scheduler to a worker, which fails where it cannot be loaded.

Dask pickles a task into the message itself. A worker that cannot import the function's module
fails to read that message and ends, and so do those that get the task next: after four of them the
client sees KilledWorker (distributed 2026.8; under a nanny it may wait for ever). Here what went
wrong is what the task raises.
"""

from collections.abc import Sequence
from typing import Any

from dask._task_spec import Task
from distributed.protocol import pickle

HINT = (
    "a worker could not load this task: install what it needs on every host, "
    "or send the modules of a folder with gputui.send_modules(client, folder)"
)


class SentTask:
    """Pickles as a task that is loaded on arrival."""

    __slots__ = ("_task",)

    def __init__(self, task: Any) -> None:
        self._task = task

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        buffers: list[Any] = []
        data = pickle.dumps(self._task, buffer_callback=buffers.append)
        return load, (self._task.key, data, buffers)


def load(key: Any, data: bytes, buffers: Sequence[Any]) -> Any:
    """Return the task, or one that raises why it cannot be read."""
    try:
        return pickle.loads(data, buffers=buffers)
    except Exception as error:
        error.add_note(HINT)
        return Task(key, _fail, error)


def _fail(error: Exception) -> None:
    raise error
