"""Send a cluster the modules next to a user's file, a script or a preset.

Each client has modules of its own on the cluster, as long as it is there. Where two clients would
give different modules one name, the second is refused: a worker has one module of a name.
Source: Dask's documentation of plugins; they reach the workers that come later, too.
"""

import asyncio
import contextlib
import sys
import time
from collections.abc import Container
from pathlib import Path
from typing import Any, ClassVar

from distributed import Client
from distributed.diagnostics.plugin import SchedulerPlugin, WorkerPlugin

from gputui.errors import UsageError
from gputui.runs.script.modules import Modules, modules_in

LEAVES_S = 2.0
"""How long a client that has just ended may still be known to its scheduler."""


class SchedulerModules(SchedulerPlugin):  # type: ignore[misc]
    """Lets a scheduler unpickle graphs that name the modules."""

    held: ClassVar[dict[str, Modules]] = {}
    """The modules on this scheduler's cluster, by the client that gave them."""

    def __init__(self, client: str, modules: Modules) -> None:
        self.name = plugin_name(client)
        self.client = client
        self.modules = modules

    async def start(self, scheduler: Any) -> None:
        """Take the place of this client's before, and of clients that are gone.

        Raises UsageError where those of another one clash.
        """
        end = time.monotonic() + LEAVES_S
        while problem := self._clash(scheduler.clients):
            if time.monotonic() > end:
                raise UsageError(problem)
            await asyncio.sleep(0.05)
        replaced = {*self.held} - {*scheduler.clients} | {*self.held} & {self.client}
        gone = {each: self.held.pop(each) for each in replaced}
        self.held[self.client] = self.modules  # with nothing awaited since they were compared
        for client, modules in gone.items():
            modules.uninstall()
            await _forget(scheduler, plugin_name(client))
        try:
            self.modules.install()
        except ImportError:
            del self.held[self.client]
            raise

    def _clash(self, clients: Container[str]) -> str:
        """Return why these modules cannot be had with those of other clients; "" where they can."""
        for client, others in self.held.items():
            names = self.modules.clashes(others)
            if names and client in clients and client != self.client:
                return clash(names, self.modules, others)
        return ""


class WorkerModules(WorkerPlugin):  # type: ignore[misc]
    """Lets a worker run functions of the modules."""

    def __init__(self, client: str, modules: Modules) -> None:
        self.name = plugin_name(client)
        self.modules = modules

    def setup(self, worker: Any) -> None:
        """Install them, before the worker takes a task."""
        self.modules.install()

    def teardown(self, worker: Any) -> None:
        """Make room for those of others."""
        self.modules.uninstall()


async def _forget(scheduler: Any, name: str) -> None:
    """Remove the plugins of a client that is gone; a worker that ends just now need not answer."""
    if name in scheduler.worker_plugins:
        with contextlib.suppress(OSError):
            await scheduler.unregister_worker_plugin(None, name)
    if name in scheduler.plugins:
        scheduler.remove_plugin(name)


def plugin_name(client: str) -> str:
    """Return how a client's modules are called."""
    return f"modules of {client}"


def clash(names: list[str], modules: Modules, others: Modules) -> str:
    """Return why modules cannot be given to a cluster that has these others."""
    where = others.folder if others.folder != modules.folder else f"{others.folder}, as it was"
    return (
        f"this cluster is running other modules of these names, from {where}: {', '.join(names)}; "
        f"wait until that run has ended, rename yours in {modules.folder}, "
        "or use a cluster of your own"
    )


def send_modules(client: Client, folder: str | Path) -> Any:
    """Give the modules in a folder to a cluster: to its scheduler, and to the workers of all hosts.

    Workers that come later get them, too, for as long as the client is connected; sending again
    replaces them. Returns an awaitable where the client is asynchronous. Raises UsageError where
    there is no such folder, or another client has given the cluster others of the same names.
    """
    return client.sync(send, client, Path(folder))


async def send(client: Client, folder: Path) -> None:
    """Give the modules in a folder to a cluster; those in use here are the last to be left out."""
    if not folder.is_dir():
        raise UsageError(f"{folder}: no such folder")
    modules = modules_in(folder.absolute(), first=sys.modules.keys())
    if modules.left_out:
        text = f"{modules.left_out:,} modules in {folder} are too large to be sent along"
        print(f"gputui: {text}", file=sys.stderr)
    await client.register_plugin(SchedulerModules(client.id, modules))
    if modules.sources:
        await client.register_plugin(WorkerModules(client.id, modules))
