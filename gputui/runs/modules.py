"""The modules next to a script or a preset, for the scheduler and the workers: source, in memory.

A task is sent with the name of its function's module, which the worker imports. The script's
folder may not exist there, and a running cluster may still have modules of another person's script
or of an earlier run: a name always loads the module of the current run.

Each client has its own modules on the cluster while it is connected. If two programs send different
modules with one name, the second is refused: a worker has one module of a name. Where one program
does, as a notebook whose modules were edited, the newest ones hold.
Source: Dask's documentation of plugins; they reach the workers that come later, too.
"""

import asyncio
import contextlib
import pkgutil
import secrets
import sys
import time
from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from importlib.abc import ExecutionLoader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.resources.abc import ResourceReader
from importlib.util import decode_source, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from distributed import Client
from distributed.diagnostics.plugin import SchedulerPlugin, WorkerPlugin

from gputui.errors import UsageError

MOST_BYTES = 8 * 2**20
"""Nothing is sent past this: the folder is then a whole library."""

DEEPEST = 8
"""Packages within packages; a folder may hold a link to itself."""

LEAVES_S = 2.0
"""How long a client that has just ended may still be known to its scheduler."""


PROGRAM = secrets.token_hex(8)
"""The id of this process."""


class Modules(MetaPathFinder, ExecutionLoader):
    """Finds and loads modules by their sources."""

    def __init__(
        self,
        folder: str,
        sources: Mapping[str, bytes],
        paths: Mapping[str, str],
        left_out: int = 0,
    ) -> None:
        self.folder = folder
        self.sources = dict(sources)
        """Module → the content of its file."""
        self.paths = dict(paths)
        """Module → the path of its file where it comes from, its `__file__` everywhere."""
        self.left_out = left_out
        """How many modules in the folder were too many."""
        self.client = self.program = ""
        """The ids of the Dask client that has sent them, and of its process."""

    def install(self) -> None:
        """Have imports find these modules first.

        Raises ImportError where a module of such a name, but another one, is in use here.
        """
        if clashing := [name for name in self.sources if self._is_another(name)]:
            raise ImportError(
                f"{', '.join(clashing)}: the cluster has loaded another module of this name; "
                f"rename yours in {self.folder}"
            )
        sys.meta_path.insert(0, self)

    def uninstall(self) -> None:
        """Remove these modules, except those that another client has sent with the same content."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        for name, source in self.sources.items():
            loaded = getattr(sys.modules.get(name), "__loader__", None)
            alike = any(each.sources.get(name) == source for each in installed())
            if isinstance(loaded, Modules) and not alike:
                del sys.modules[name]

    def clashes(self, other: "Modules") -> list[str]:
        """Return the names that mean another module there than here."""
        there = other.sources
        return [name for name, source in self.sources.items() if there.get(name, source) != source]

    def _is_another(self, name: str) -> bool:
        """Whether a module of this name is loaded that is not this one."""
        module = sys.modules.get(name)
        if module is None:
            return False
        loader = getattr(module, "__loader__", None)
        if isinstance(loader, Modules):
            return loader.sources[name] != self.sources[name]
        try:
            return Path(module.__file__ or "").read_bytes() != self.sources[name]
        except (AttributeError, OSError):
            return True

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return how a module is loaded; None if it is not one of these.

        Dask's `upload_file` loads again what it has written into a folder of `sys.path`.
        """
        if fullname not in self.sources or (target and PathFinder.find_spec(fullname, path)):
            return None
        file = Path(self.paths[fullname])
        inside = [str(file.parent)] if file.name == "__init__.py" else None
        return spec_from_file_location(
            fullname, str(file), loader=self, submodule_search_locations=inside
        )

    def get_filename(self, fullname: str) -> str:
        """Return the path of a module's file where it comes from."""
        return self.paths[fullname]

    def get_source(self, fullname: str) -> str:
        """Return a module's text, for loading it and for tracebacks."""
        return decode_source(self.sources[fullname])

    def get_data(self, path: str) -> bytes:
        """Return the content of a package's file, on this machine or a shared file system."""
        return Path(path).read_bytes()

    def get_resource_reader(self, fullname: str) -> ResourceReader:
        """Return the reader of such files for `importlib.resources`."""
        return SourceFileLoader(fullname, self.paths[fullname]).get_resource_reader(fullname)


def installed() -> list[Modules]:
    """Return the modules that imports find in this process."""
    return [each for each in sys.meta_path if isinstance(each, Modules)]


def modules_in(folder: Path, first: Collection[str] = ()) -> Modules:
    """Return the modules and packages in a folder, as far as they can be read and there is room.

    Those named `first` are the last to be left out. A file is no module of the folder where its
    name is that of one of Python's own, or of one that was loaded here from elsewhere; nor is the
    script itself one.
    """
    sources: dict[str, bytes] = {}
    room, left_out = MOST_BYTES, 0
    own = [each for each in _found(folder, "") if not _is_shadowed(*each)]
    for name, path in sorted(own, key=lambda each: each[0] not in first):
        with contextlib.suppress(OSError):
            size_bytes = path.stat().st_size
            if size_bytes > room:
                left_out += 1
                continue
            room -= size_bytes
            sources[name] = path.read_bytes()
    return Modules(str(folder), sources, {name: str(path) for name, path in own}, left_out)


def _is_shadowed(name: str, path: Path) -> bool:
    """Whether an import of this name would not find this file, here or on the cluster."""
    if name == "__main__" or name.partition(".")[0] in sys.stdlib_module_names:
        return True
    loaded = sys.modules.get(name, sys.modules["__main__"])
    same = path.resolve() == Path(getattr(loaded, "__file__", None) or "").resolve()
    return same is (name not in sys.modules)


def _found(folder: Path, parent: str) -> Iterator[tuple[str, Path]]:
    """Yield (module, its file) of a folder, and of the packages in it."""
    if parent.count(".") > DEEPEST:
        return
    for _, name, is_package in pkgutil.iter_modules([str(folder)], parent):
        path = folder / name.rpartition(".")[2]
        if not path.name.isidentifier():
            continue
        if is_package:
            yield name, path / "__init__.py"
            yield from _found(path, f"{name}.")
        elif (path.parent / f"{path.name}.py").is_file():
            yield name, path.parent / f"{path.name}.py"


class SentModules:
    """A plugin with the modules of a client."""

    def __init__(self, modules: Modules) -> None:
        self.name = plugin_name(modules.client)
        self.modules = modules


class SchedulerModules(SentModules, SchedulerPlugin):  # type: ignore[misc]
    """Lets the scheduler unpickle graphs that refer to the modules."""

    async def start(self, scheduler: Any) -> None:
        """Replace the modules of clients that are gone, and this client's earlier ones.

        Raises UsageError if they clash with another client's.
        """
        end = time.monotonic() + LEAVES_S
        while problem := self._clash(scheduler.clients):
            if time.monotonic() > end:
                raise UsageError(problem)
            await asyncio.sleep(0.05)
        there, new = {*scheduler.clients} - {self.modules.client}, self.modules
        gone = [
            each
            for each in installed()
            if each.client not in there or (each.program == new.program and new.clashes(each))
        ]
        for modules in gone:
            modules.uninstall()
        try:
            self.modules.install()  # with nothing awaited since they were compared
        finally:
            for modules in gone:
                name = plugin_name(modules.client)
                if name in scheduler.worker_plugins:
                    with contextlib.suppress(OSError):  # a worker that just ends need not answer
                        await scheduler.unregister_worker_plugin(None, name)
                if name in scheduler.plugins:
                    scheduler.remove_plugin(name)

    def _clash(self, clients: Container[str]) -> str:
        """Return why these modules cannot be had with those of other clients; "" where they can."""
        for others in installed():
            names = self.modules.clashes(others)
            if names and others.client in clients and others.program != self.modules.program:
                own, there = self.modules.folder, others.folder
                where = there if there != own else f"{there}, as it was"
                return (
                    f"this cluster is running other modules of these names, from {where}: "
                    f"{', '.join(names)}; wait until that run has ended, rename yours in {own}, "
                    "or use a cluster of your own"
                )
        return ""


class WorkerModules(SentModules, WorkerPlugin):  # type: ignore[misc]
    """Lets a worker run functions of the modules."""

    def setup(self, worker: Any) -> None:
        """Install them, before the worker takes a task."""
        self.modules.install()

    def teardown(self, worker: Any) -> None:
        """Remove them from the worker."""
        self.modules.uninstall()


def plugin_name(client: str) -> str:
    """Return how a client's modules are called."""
    return f"modules of {client}"


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
    modules.client, modules.program = client.id, PROGRAM
    await client.register_plugin(SchedulerModules(modules))
    if modules.sources:
        await client.register_plugin(WorkerModules(modules))
