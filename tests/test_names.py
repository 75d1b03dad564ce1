"""Plain words in docstrings."""

import ast
import re
from pathlib import Path

import gputui

MODULES = sorted(Path(gputui.__file__).parent.rglob("*.py"))
UNCLEAR = re.compile(
    r"\b(told|anew|whoever|beside|there (is|are) none|returns? (what|who|whose|whatever))\b", re.I
)


def test_docstrings_name_what_a_function_returns() -> None:
    found = [
        f"{path.name}: {match[0]}"
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        for match in UNCLEAR.finditer(ast.get_docstring(node) or "")
    ]
    assert found == []
