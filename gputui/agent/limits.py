"""Ends workers whose own memory nears their limit, before the kernel ends others."""

import asyncio
from collections.abc import Callable, Mapping

from gputui.agent.worker_process import WorkerProcess
from gputui.process import procfs
from gputui.process.memory import memory_limit

CHECK_S = 0.2


async def keep_limits(
    workers: Mapping[str, WorkerProcess], share: Callable[[], float | None]
) -> None:
    """Watch the memory of these workers until cancelled, whichever they are by then.

    `share` says at how much of its limit a worker is ended; None is never.
    """
    while True:
        of_limit = share()
        for worker in workers.values():
            if of_limit and (limit := _exceeded(worker, of_limit)):
                worker.over_limit_bytes = limit
                worker.kill()
        await asyncio.sleep(CHECK_S)


def _exceeded(worker: WorkerProcess, share: float) -> int:
    """Return the limit that a worker has come up to; 0 while it has not, or is being ended."""
    if worker.pid is None or worker.over_limit_bytes is not None:
        return 0
    stat, spec = procfs.process_stat(worker.pid), worker.spec
    if stat is None or stat.rss_bytes < spec.memory_limit_bytes * share:
        return 0
    limit = memory_limit(spec.memory_limit_bytes, spec.memory_share)
    return limit if stat.rss_bytes >= limit * share else 0
