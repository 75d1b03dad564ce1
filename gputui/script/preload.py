"""What a script's `Client()` does first: it gives the cluster the modules beside the script.

Source: Dask's configuration reference, `distributed.client.preload`; plugins reach the workers
that come later, too.
"""

import sys
from pathlib import Path
from typing import Any

from distributed import Client
from distributed.diagnostics.plugin import SchedulerPlugin, WorkerPlugin

from gputui.script.handover import taken
from gputui.script.modules import Modules, modules_in


class SchedulerModules(SchedulerPlugin):  # type: ignore[misc]
    """Lets a scheduler unpickle graphs that name a script's modules."""

    def __init__(self, modules: Modules) -> None:
        self.name = f"modules in {modules.folder}"
        self.modules = modules

    async def start(self, scheduler: Any) -> None:
        """Install them, before the scheduler takes a graph."""
        self.modules.install()


class WorkerModules(WorkerPlugin):  # type: ignore[misc]
    """Lets a worker run functions of a script's modules."""

    def __init__(self, modules: Modules) -> None:
        self.name = f"modules in {modules.folder}"
        self.modules = modules

    def setup(self, worker: Any) -> None:
        """Install them, before the worker takes a task."""
        self.modules.install()


async def dask_setup(client: Client) -> None:
    """Give the modules to the cluster that the script was handed, and to no other one."""
    handover = taken(client.scheduler.address)
    if handover is None:
        return
    modules = modules_in(Path(handover.folder), first=sys.modules.keys())
    if modules.left_out:
        text = f"{modules.left_out:,} modules beside the script are too large to be sent along"
        print(f"gputui: {text}", file=sys.stderr)
    if modules.sources:
        await client.register_plugin(SchedulerModules(modules))
        await client.register_plugin(WorkerModules(modules))
