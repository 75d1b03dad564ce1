"""Tasks for one worker alone, which any other one runs once that worker is gone.

A task that may run elsewhere is stolen from a busy worker by an idle one, and one that may not
waits for ever where its worker is lost. So its restriction holds as long as its worker is there.
"""

import asyncio
from functools import partial
from typing import Any

import dask
from distributed.diagnostics.plugin import SchedulerPlugin

MARK = "gputui-while-worker-lives"
while_worker_lives = partial(dask.annotate, **{MARK: True})
"""Returns a context in which tasks are submitted whose restriction ends with their worker."""


class LiftsRestrictions(SchedulerPlugin):  # type: ignore[misc]
    """Lets such tasks run on any worker when their own is gone, however they are waited for."""

    name, idempotent = "gputui-lifts-restrictions", True

    def start(self, scheduler: Any) -> None:
        """Keep the scheduler, which `transition` is not given."""
        self._scheduler = scheduler

    def transition(self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
        """Look at a task that has found no worker; not within its transition."""
        if finish == "no-worker":
            asyncio.get_running_loop().call_soon(self._lift, key)

    def remove_worker(self, scheduler: Any, worker: str, **kwargs: Any) -> None:
        """Look at the tasks that have waited for a paused worker."""
        for task in list(scheduler.unrunnable):
            self._lift(task.key)

    def _lift(self, key: Any) -> None:
        task, there = self._scheduler.tasks.get(key), self._scheduler.workers
        if task not in self._scheduler.unrunnable or MARK not in (task.annotations or ()):
            return
        if task.worker_restrictions and task.worker_restrictions.isdisjoint(there):
            task.worker_restrictions = None
            self._scheduler.transitions({key: "processing"}, "gputui: worker gone")
