"""The private parts of libraries that gputui uses: each may change with any release of its library.

They are why pyproject.toml bounds these libraries at the minor versions that were tested. A new
use fails here until it stands in the table.
"""

import ast
import importlib
import importlib.metadata
import inspect
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version
from textual.drivers.linux_driver import LinuxDriver

import gputui
from gputui.errors import GputuiError
from gputui.tui.terminal import PRIVATE as TEXTUALS
from gputui.tui.terminal import CellDriver, require

ROOT = Path(gputui.__file__).parent
TREES = {path: ast.parse(path.read_text(encoding="utf-8")) for path in ROOT.rglob("*.py")}
LIBRARIES = ("asyncssh", "dask", "distributed", "textual")

OPTIONAL = ("cupy_setup", "notebook")
"""Modules that import what need not be installed."""

REFUSED = "nothing; a release without it is refused in a sentence that names the one to install"
BOUNDED = "nothing; the upper bound in pyproject.toml keeps a release without it out"

PRIVATE = {
    "modules": {"dask._task_spec": BOUNDED, "textual._xterm_parser": REFUSED},
    "overridden": dict.fromkeys(
        (
            "distributed Cluster._close",
            "distributed Cluster._ipython_display_",
            "distributed Cluster._repr_html_",
            "distributed Cluster._start",
            "distributed Cluster._sync_cluster_info",
            "distributed Cluster._update_worker_status",
            "distributed Cluster._wait_for_workers",
            "distributed Cluster._watch_worker_status",
            "distributed SchedulerState._task_to_msg",
            "distributed Security._get_tls_context",
            "distributed TLSBackend._listener_class",
            "distributed TLSListener._prepare_stream",
        ),
        REFUSED,
    ),
    "attributes": {
        "_current_frames": "documented by Python (sys)",
        "_cluster_info": BOUNDED,  # of distributed's Cluster
        "_loop_runner": BOUNDED,  # of distributed's Cluster
        "_replace": "documented by Python (namedtuple)",
        "_repr_mimebundle_": "documented by IPython",
        "_run_exitfuncs": "nothing; a worker ends without exit handlers of tasks (atexit)",
    },
}
"""Each, and what stands in where a release has it no more."""


def private(name: str) -> bool:
    """Whether a name is private, and no method of Python's data model."""
    return name.startswith("_") and not name.startswith("__") and name != "_"


def nodes() -> Iterator[ast.AST]:
    """Yield every node of gputui's modules."""
    for tree in TREES.values():
        yield from ast.walk(tree)


def private_modules() -> set[str]:
    """Return the private modules of libraries that are imported."""
    found = {node.module or "" for node in nodes() if isinstance(node, ast.ImportFrom)}
    found |= {each.name for node in nodes() if isinstance(node, ast.Import) for each in node.names}
    return {name for name in found if any(map(private, name.split(".")))}


def overridden() -> set[str]:
    """Return the private methods and attributes of libraries' classes that a class replaces."""
    found = set()
    for path, tree in TREES.items():
        classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and node.bases]
        if not classes or path.stem in OPTIONAL:
            continue
        parts = path.relative_to(ROOT.parent).with_suffix("").parts
        module = importlib.import_module(".".join(parts).removesuffix(".__init__"))
        for node in classes:
            mine = {name for each in node.body for name in _names(each) if private(name)}
            kind = getattr(module, node.name, None)
            for base in inspect.getmro(kind)[1:] if mine and isinstance(kind, type) else ():
                library = base.__module__.partition(".")[0]
                if library in LIBRARIES:
                    hits = mine & vars(base).keys()
                    found |= {f"{library} {base.__name__}.{name}" for name in hits}
                    mine -= hits
    return found


def _names(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return [node.name]
    if isinstance(node, ast.Assign):
        return [target.id for target in node.targets if isinstance(target, ast.Name)]
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return [node.target.id]
    return []


def attributes() -> set[str]:
    """Return the private attributes that are read and that nothing in gputui defines."""
    defined = {node.name for node in nodes() if hasattr(node, "name")}
    defined |= {n.attr for n in nodes() if isinstance(n, ast.Attribute) and _is_set(n)}
    defined |= {n.id for n in nodes() if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    used = {node.attr for node in nodes() if isinstance(node, ast.Attribute) and private(node.attr)}
    return used - defined


def _is_set(node: ast.Attribute) -> bool:
    return isinstance(node.ctx, ast.Store)


@pytest.mark.parametrize(
    ("kind", "found"),
    [("modules", private_modules), ("overridden", overridden), ("attributes", attributes)],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_every_private_use_of_a_library_is_in_the_table(kind: str, found: object) -> None:
    assert callable(found)
    assert found() == PRIVATE[kind].keys()


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_library_whose_private_parts_are_used_is_bounded_at_the_tested_minor_version(
    library: str,
) -> None:
    project = tomllib.loads((ROOT.parent / "pyproject.toml").read_text(encoding="utf-8"))
    given = [Requirement(text) for text in project["project"]["dependencies"]]
    (needed,) = [each for each in given if each.name == library]
    major, minor, *_ = importlib.metadata.version(library).split(".")
    assert f"{major}.{minor}.9" in needed.specifier
    assert f"{major}.{int(minor) + 1}.0" not in needed.specifier


def test_rich_is_bounded_below_where_textual_can_be_installed() -> None:
    project = tomllib.loads((ROOT.parent / "pyproject.toml").read_text(encoding="utf-8"))
    ours, theirs = (
        next(each for each in map(Requirement, texts) if each.name == "rich")
        for texts in (
            project["project"]["dependencies"],
            importlib.metadata.requires("textual") or [],
        )
    )
    our_least, their_least = (
        next(Version(spec.version) for spec in each.specifier if spec.operator == ">=")
        for each in (ours, theirs)
    )
    assert our_least >= their_least


def test_what_the_screens_driver_overrides_is_listed_and_there() -> None:
    require()
    overridden = {name for name in vars(CellDriver) if hasattr(LinuxDriver, name)}
    named = {name.rpartition(".")[2] for name in TEXTUALS}
    assert {name for name in overridden if not name.startswith(("__", "_abc_impl"))} <= named


@pytest.mark.parametrize("name", ["textual._no_parser:Parser", "textual.app:App.no_such"])
def test_a_part_of_textual_that_is_gone_is_named_with_what_to_install(name: str) -> None:
    with pytest.raises(GputuiError, match=r"Textual 8\.\S+ has no textual\S+.*pip install"):
        require((name,))
