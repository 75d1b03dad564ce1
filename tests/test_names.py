"""One name for one thing, and plain words: who looks for a class or a module finds one."""

import ast
import re
from collections import Counter
from pathlib import Path

import gputui

MODULES = sorted(Path(gputui.__file__).parent.rglob("*.py"))
UNCLEAR = re.compile(
    r"\b(told|anew|whoever|beside|there (is|are) none|returns? (what|who|whose|whatever))\b", re.I
)


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


def test_docstrings_name_what_a_function_returns() -> None:
    found = [
        f"{path.name}: {match[0]}"
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        for match in UNCLEAR.finditer(ast.get_docstring(node) or "")
    ]
    assert found == []
