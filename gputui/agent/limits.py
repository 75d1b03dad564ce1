"""Ends workers whose own memory nears their limit, before the kernel ends others."""

import asyncio
from collections.abc import Mapping

from gputui.agent.worker_process import WorkerProcess
from gputui.process import procfs
from gputui.process.memory import memory_limit

CHECK_S = 0.2
SHARE = 0.95
"""Of its limit: where a worker is ended. Source: distributed.worker.memory.terminate."""


async def keep_limits(workers: Mapping[str, WorkerProcess]) -> None:
    """Watch the memory of these workers for ever, whichever they are by then."""
    while True:
        for worker in workers.values():
            if limit := _exceeded(worker):
                worker.over_limit_bytes = limit
                worker.kill()
        await asyncio.sleep(CHECK_S)


def _exceeded(worker: WorkerProcess) -> int:
    """Return the limit that a worker has come up to; 0 while it has not, or is being ended."""
    if worker.pid is None or worker.over_limit_bytes is not None:
        return 0
    stat, spec = procfs.process_stat(worker.pid), worker.spec
    if stat is None or stat.rss_bytes < spec.memory_limit_bytes * SHARE:
        return 0
    limit = memory_limit(spec.memory_limit_bytes, spec.memory_share)
    return limit if stat.rss_bytes >= limit * SHARE else 0
