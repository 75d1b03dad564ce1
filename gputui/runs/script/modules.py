"""The modules next to a script or a preset, for the scheduler and the workers: source, in memory.

A task is sent with the name of its function's module, and the worker imports that. The
script's folder may not be there, and a running cluster may have modules of another person's script
or of the run before: what is loaded under a name is always that of the run that goes on.
"""

import contextlib
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.abc import ExecutionLoader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import decode_source, spec_from_file_location
from pathlib import Path
from types import ModuleType

MOST_BYTES = 8 * 2**20
"""Nothing is sent past this: the folder is then a whole library."""

DEEPEST = 8
"""Packages within packages; a folder may hold a link to itself."""


@dataclass(frozen=True, slots=True)
class ModuleSource:
    """One module's file."""

    path: str = field(compare=False)
    """Its path relative to the script; `__file__` of the module everywhere."""
    content: bytes
    is_package: bool


class Modules(MetaPathFinder, ExecutionLoader):
    """Finds and loads modules by their sources."""

    def __init__(self, folder: str, sources: Mapping[str, ModuleSource], left_out: int = 0) -> None:
        self.folder = folder
        self.sources = dict(sources)
        self.left_out = left_out
        """How many modules in the folder were too many."""

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
        """Forget these modules, but for those that others have sent alike."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        staying = [each for each in sys.meta_path if isinstance(each, Modules)]
        for name, source in self.sources.items():
            loaded = getattr(sys.modules.get(name), "__loader__", None)
            alike = any(each.sources.get(name) == source for each in staying)
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
            return Path(module.__file__ or "").read_bytes() != self.sources[name].content
        except (AttributeError, OSError):
            return True

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return how a module is loaded; None if it is not one of these."""
        source = self.sources.get(fullname)
        if source is None:
            return None
        inside = [str(Path(source.path).parent)] if source.is_package else None
        return spec_from_file_location(
            fullname, source.path, loader=self, submodule_search_locations=inside
        )

    def get_filename(self, fullname: str) -> str:
        """Return a module's path relative to the script."""
        return self._source(fullname).path

    def get_source(self, fullname: str) -> str:
        """Return a module's text, for loading it and for tracebacks."""
        return decode_source(self._source(fullname).content)

    def is_package(self, fullname: str) -> bool:
        """Whether a module has others inside."""
        return self._source(fullname).is_package

    def _source(self, fullname: str) -> ModuleSource:
        if fullname not in self.sources:
            raise ImportError(f"no module {fullname} in {self.folder}")
        return self.sources[fullname]


def modules_in(folder: Path, first: Collection[str] = ()) -> Modules:
    """Return the modules and packages in a folder, as far as they can be read and there is room.

    Those named `first` are the last to be left out. A file is no module of the folder where its
    name is that of one of Python's own, or of one that was loaded here from elsewhere; nor is the
    script itself one.
    """
    sources: dict[str, ModuleSource] = {}
    room, left_out = MOST_BYTES, 0
    own = [each for each in _found(folder, "") if not _is_shadowed(*each)]
    found = sorted(own, key=lambda each: each[0] not in first)
    for name, path in found:
        with contextlib.suppress(OSError):
            size_bytes = path.stat().st_size
            if size_bytes > room:
                left_out += 1
                continue
            room -= size_bytes
            sources[name] = ModuleSource(str(path), path.read_bytes(), path.name == "__init__.py")
    return Modules(str(folder), sources, left_out)


def _is_shadowed(name: str, path: Path) -> bool:
    """Whether an import of this name would not find this file, here or on the cluster."""
    top = name.partition(".")[0]
    if top in sys.stdlib_module_names:
        return True
    if name not in sys.modules:
        return path.resolve() == Path(getattr(sys.modules["__main__"], "__file__", "")).resolve()
    return path.resolve() != Path(sys.modules[name].__file__ or "").resolve()


def _found(folder: Path, parent: str) -> Iterator[tuple[str, Path]]:
    """Yield (module, its file) of a folder, and of the packages in it."""
    if parent.count(".") > DEEPEST:
        return
    with contextlib.suppress(OSError):
        for path in sorted(folder.iterdir()):
            name = parent + path.stem
            if not path.stem.isidentifier():
                continue
            if path.suffix == ".py" and path.stem != "__init__":
                yield name, path
            elif (path / "__init__.py").is_file():
                yield name, path / "__init__.py"
                yield from _found(path, f"{name}.")
