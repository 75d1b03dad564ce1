"""`python -m gputui.head.scheduler`: the head's child; its configuration and orders are on stdin.

The messages to the head go out on what was stdout; file descriptor 1 becomes stderr, so that
nothing printed here is taken for a message of the scheduler. It dies with the head.
"""

import asyncio
import faulthandler
import gc
import logging
import os
from typing import TYPE_CHECKING

from gputui.engine import dask_settings
from gputui.process.background import Background, within
from gputui.process.lifetime import die_with, dump_no_core, raise_file_limit
from gputui.process.search_path import add_task_path
from gputui.protocol.shared import DUMP_SIGNAL

if TYPE_CHECKING:
    from gputui.head.scheduler.scheduler import Reporter, Scheduler

CLOSE_S = 1.0


def main() -> None:
    """Run until the head says stop or is gone."""
    dump_no_core()
    die_with(os.getppid())
    faulthandler.register(DUMP_SIGNAL, all_threads=False)
    output = os.dup(1)
    os.dup2(2, 1)
    asyncio.run(_run(output))


async def _run(output_descriptor: int) -> None:
    # Imported late: it takes most of the start, and the death signal comes before it.
    # Imports make much and drop little: collections are a tenth of their time.
    gc.disable()
    import dask.config

    from gputui.engine import tls
    from gputui.head.scheduler.scheduler import HeadChannel, Reporter, Scheduler
    from gputui.protocol.scheduler import ConfigureScheduler, SchedulerStarted, ToScheduler
    from gputui.protocol.streams import SocketStream

    gc.freeze()
    gc.enable()
    add_task_path()
    stream = await SocketStream.of_pipes(0, output_descriptor)
    channel = HeadChannel(stream, ToScheduler)
    config = await channel.receive()
    if not isinstance(config, ConfigureScheduler):
        return
    for handler in logging.getLogger("distributed").handlers:
        handler.setLevel(logging.WARNING)  # the head logs who joins; clients ask for the rest
    # Agents that try whether they reach the port are no failed TLS handshakes to warn of.
    logging.getLogger("distributed.comm.tcp").setLevel(logging.ERROR)
    dask_settings.apply(config.credentials.dask_config_json)
    tls.guard_ports()
    raise_file_limit()
    try:
        scheduler = await Scheduler(config)
    except RuntimeError as error:
        raise SystemExit(_unstarted(config.port, error)) from error
    dashboard = scheduler.services.get("dashboard")
    scheme = "https" if dask.config.get("distributed.scheduler.dashboard.tls.cert") else "http"
    where = f"{scheme}://127.0.0.1:{dashboard.port}/status" if dashboard else ""
    channel.send(SchedulerStarted(scheduler.port, where))
    await _serve(scheduler, Reporter(scheduler, channel), config.report_interval_s)
    # Anything left ends with the process.
    await within(CLOSE_S, scheduler.close(reason="the cluster stops"))


def _unstarted(port: int, error: RuntimeError) -> str:
    """Return why no scheduler listens: Dask raises "failed to start" from the cause."""
    cause = error.__cause__
    if not isinstance(cause, OSError):
        return f"{type(cause or error).__name__}: {cause or error}"
    hint = "set gputui.scheduler.port (DASK_GPUTUI__SCHEDULER__PORT) to another one, 0 for any"
    return f"port {port}: {os.strerror(cause.errno or 0)}; {hint}"


async def _serve(scheduler: "Scheduler", reporter: "Reporter", interval_s: float) -> None:
    """Return when the head says stop or is gone, or a client closed the scheduler.

    What fails here is the end of this process, with its reason on stderr.
    """
    works = reporter.report(interval_s), scheduler.finished(), reporter.obey()
    tasks = Background(lambda name, error: None, logged=False)
    running = [tasks.start(work, "serving") for work in works]
    ended, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
    await tasks.close()
    for task in ended:
        task.result()


if __name__ == "__main__":
    main()
    os._exit(0)
