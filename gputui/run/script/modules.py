"""The modules beside a script or a preset, for the scheduler and the workers: source, in memory.

A task is sent with the name of its function's module, and whoever runs it imports that. The
script's folder may not be there, or a running cluster may have the modules of the run before.
"""

import contextlib
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.abc import ExecutionLoader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import decode_source, spec_from_file_location
from pathlib import Path
from types import ModuleType

MOST_BYTES = 8 * 2**20
"""What lies past this is left at home: the folder is then somebody's whole library."""

DEEPEST = 8
"""Packages within packages; a folder may hold a link to itself."""


@dataclass(frozen=True, slots=True)
class Source:
    """One module's file."""

    path: str
    """Where it lies beside the script; `__file__` of the module everywhere."""
    content: bytes
    is_package: bool


class Modules(MetaPathFinder, ExecutionLoader):
    """Finds and loads modules by their sources."""

    def __init__(self, folder: str, sources: Mapping[str, Source], left_out: int = 0) -> None:
        self.folder = folder
        self.sources = dict(sources)
        self.left_out = left_out
        """How many modules in the folder were too many."""

    def install(self) -> None:
        """Have imports find these modules first, in place of an earlier state of the folder."""
        before = [each for each in sys.meta_path if isinstance(each, Modules)]
        before = [each for each in before if each.folder == self.folder]
        if any(each.sources == self.sources for each in before):
            return
        for each in before:
            sys.meta_path.remove(each)
        for name in self.sources:
            if isinstance(getattr(sys.modules.get(name), "__loader__", None), Modules):
                del sys.modules[name]
        sys.meta_path.insert(0, self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return how a module is loaded; None where it is none of these."""
        source = self.sources.get(fullname)
        if source is None:
            return None
        inside = [str(Path(source.path).parent)] if source.is_package else None
        return spec_from_file_location(
            fullname, source.path, loader=self, submodule_search_locations=inside
        )

    def get_filename(self, fullname: str) -> str:
        """Return where a module's file lies beside the script."""
        return self._source(fullname).path

    def get_source(self, fullname: str) -> str:
        """Return a module's text, for loading it and for tracebacks."""
        return decode_source(self._source(fullname).content)

    def is_package(self, fullname: str) -> bool:
        """Whether a module has others inside."""
        return self._source(fullname).is_package

    def _source(self, fullname: str) -> Source:
        if fullname not in self.sources:
            raise ImportError(f"no module {fullname} in {self.folder}")
        return self.sources[fullname]


def modules_in(folder: Path, first: Collection[str] = ()) -> Modules:
    """Return the modules and packages in a folder, as far as they can be read and there is room.

    Those named `first` are the last to be left out.
    """
    sources: dict[str, Source] = {}
    room, left_out = MOST_BYTES, 0
    found = sorted(_found(folder, ""), key=lambda each: each[0] not in first)
    for name, path in found:
        with contextlib.suppress(OSError):
            size_bytes = path.stat().st_size
            if size_bytes > room:
                left_out += 1
                continue
            room -= size_bytes
            sources[name] = Source(str(path), path.read_bytes(), path.name == "__init__.py")
    return Modules(str(folder), sources, left_out)


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
