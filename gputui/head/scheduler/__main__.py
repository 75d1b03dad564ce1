"""`python -m gputui.head.scheduler`: the head's child; its configuration and orders are on stdin.

The messages to the head go out on what was stdout; file descriptor 1 becomes stderr, so that
nothing printed here can speak for the scheduler. It dies with the head.
"""

import asyncio
import contextlib
import gc
import json
import logging
import os
import resource

from gputui.process.lifetime import die_with
from gputui.process.search_path import add_task_path


def main() -> None:
    """Run until the head says stop or is gone."""
    die_with(os.getppid())
    output = os.dup(1)
    os.dup2(2, 1)
    asyncio.run(_run(output))


async def _run(output_descriptor: int) -> None:
    # Here and not above: it takes most of the start, and the death signal comes before it.
    # Imports make much and drop little: collections are a tenth of their time.
    gc.disable()
    import dask

    from gputui import tls
    from gputui.head.scheduler.reporter import Reporter, close_quickly, open_input, open_output
    from gputui.head.scheduler.scheduler import ClusterScheduler
    from gputui.protocol.codec import decode
    from gputui.protocol.scheduler import ConfigureScheduler, SchedulerStarted

    gc.freeze()
    gc.enable()
    add_task_path()
    orders, output = await open_input(0), await open_output(output_descriptor)
    line = await orders.readline()
    if not line:
        return
    config = decode(line, ConfigureScheduler)
    logging.getLogger("distributed").setLevel(logging.WARNING)  # the head tells who joins
    # Agents that try whether they reach the port are no failed TLS handshakes to warn of.
    logging.getLogger("distributed.comm.tcp").setLevel(logging.ERROR)
    dask.config.update_defaults(json.loads(config.dask_config_json))
    tls.guard_ports()
    _raise_file_limit()
    scheduler = await ClusterScheduler(config)
    reporter = Reporter(scheduler, output)
    dashboard = scheduler.services.get("dashboard")
    reporter.send(
        SchedulerStarted(
            os.getpid(),
            scheduler.port,
            f"http://127.0.0.1:{dashboard.port}/status" if dashboard else "",
        )
    )
    reporting = asyncio.create_task(reporter.report(config.report_interval_s))
    finished = asyncio.create_task(scheduler.finished())
    obeying = asyncio.create_task(reporter.obey(orders))
    await asyncio.wait({reporting, finished, obeying}, return_when=asyncio.FIRST_COMPLETED)
    failed = [task.exception() for task in (reporting, obeying) if task.done()]
    reporting.cancel()
    with contextlib.suppress(asyncio.CancelledError, Exception):
        await reporting
    await close_quickly(scheduler)
    for error in failed:
        if error is not None:
            raise error


def _raise_file_limit() -> None:
    """Allow as many open files as this user may have: each worker and client takes some."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


if __name__ == "__main__":
    main()
    os._exit(0)
