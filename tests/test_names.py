"""One name for one thing: who looks for a class or a module finds one."""

import ast
from collections import Counter
from pathlib import Path

import gputui

MODULES = sorted(Path(gputui.__file__).parent.rglob("*.py"))


def test_no_two_modules_have_one_name() -> None:
    names = Counter(path.stem for path in MODULES if not path.stem.startswith("__"))
    assert [name for name, count in names.items() if count > 1] == []


def test_no_two_classes_have_one_name() -> None:
    names = Counter(
        node.name
        for path in MODULES
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef)
    )
    assert [name for name, count in names.items() if count > 1] == []
