"""Gives a cluster the modules beside a file of the user's, a script or a preset.

Source: Dask's documentation of plugins; they reach the workers that come later, too.
"""

import sys
from pathlib import Path
from typing import Any

from distributed import Client
from distributed.diagnostics.plugin import SchedulerPlugin, WorkerPlugin

from gputui.run.script.modules import Modules, modules_in


class SchedulerModules(SchedulerPlugin):  # type: ignore[misc]
    """Lets a scheduler unpickle graphs that name the modules."""

    def __init__(self, modules: Modules) -> None:
        self.name = f"modules in {modules.folder}"
        self.modules = modules

    async def start(self, scheduler: Any) -> None:
        """Install them, before the scheduler takes a graph."""
        self.modules.install()


class WorkerModules(WorkerPlugin):  # type: ignore[misc]
    """Lets a worker run functions of the modules."""

    def __init__(self, modules: Modules) -> None:
        self.name = f"modules in {modules.folder}"
        self.modules = modules

    def setup(self, worker: Any) -> None:
        """Install them, before the worker takes a task."""
        self.modules.install()


async def send_modules(client: Client, folder: Path) -> None:
    """Give the modules in a folder to a cluster; those in use here are the last to be left out."""
    modules = modules_in(folder, first=sys.modules.keys())
    if modules.left_out:
        text = f"{modules.left_out:,} modules in {folder} are too large to be sent along"
        print(f"gputui: {text}", file=sys.stderr)
    if modules.sources:
        await client.register_plugin(SchedulerModules(modules))
        await client.register_plugin(WorkerModules(modules))
