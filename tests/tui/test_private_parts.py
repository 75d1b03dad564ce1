"""The parts of Textual that nobody promised are listed, and missed in words where they are gone."""

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from textual.drivers.linux_driver import LinuxDriver

import gputui.tui
from gputui.errors import GputuiError
from gputui.tui.terminal import PRIVATE, require

ATTRIBUTES = ("_app", "_driver", "_exit")
"""What an instance of the driver has, an app, and os."""
SOURCES = sorted(Path(gputui.tui.__file__).parent.rglob("*.py"))
TREES = {path: ast.parse(path.read_text()) for path in SOURCES}


def parts() -> Iterator[tuple[str, str, str]]:
    """Yield the modules and names that are listed."""
    yield from (name.partition(":") for name in PRIVATE)


def own_names() -> set[str]:
    """Return every private name that the screen's own code defines."""
    found = set()
    for node in (node for tree in TREES.values() for node in ast.walk(tree)):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                found.add(name)
            case ast.Attribute(attr=name, ctx=ast.Store()):
                found.add(name)
            case ast.AnnAssign(target=ast.Name(id=name)):
                found.add(name)
    return found


def private_uses(tree: ast.AST, own: set[str]) -> Iterator[str]:
    """Yield the private modules that are imported, and names that no code here defines."""
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module=str(module)) if module.startswith("textual"):
                if any(part.startswith("_") for part in module.split(".")):
                    yield from (f"{module}:{each.name}" for each in node.names)
            case ast.Attribute(attr=name) if name.startswith("_") and not name.startswith("__"):
                if name not in own:
                    yield name


def test_every_private_part_that_is_used_is_listed_and_only_the_driver_uses_one() -> None:
    own = own_names() - set(vars(LinuxDriver))
    listed = {module + ":" + name.partition(".")[0] for module, _, name in parts()}
    for path, tree in TREES.items():
        for use in private_uses(tree, own):
            assert path.parent.name == "terminal", f"{path.name} uses {use}"
            assert use in ATTRIBUTES or use in listed, use


def test_what_the_driver_overrides_is_listed_and_there() -> None:
    require()
    driver = importlib.import_module("gputui.tui.terminal")
    overridden = {name for name in vars(driver.CellDriver) if hasattr(LinuxDriver, name)}
    named = {name.rpartition(".")[2] for name in PRIVATE}
    assert {name for name in overridden if not name.startswith(("__", "_abc_impl"))} <= named


@pytest.mark.parametrize("name", ["textual._no_parser:Parser", "textual.app:App.no_such"])
def test_a_part_that_is_gone_is_named_with_what_to_install(name: str) -> None:
    with pytest.raises(GputuiError, match=r"Textual 8\.\S+ has no textual\S+.*pip install"):
        require((name,))
