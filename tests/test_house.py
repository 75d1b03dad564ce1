"""The house rules, as tests: lint, format, types, and who may import whom.

They take a minute of one processor, and begin beside the other tests (`tests/conftest.py`).
"""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

RULES = {
    "ruff check": ("-m", "ruff", "check", "."),
    "ruff format": ("-m", "ruff", "format", "--check", "."),
    "mypy": ("-m", "mypy"),
    "imports": ("-c", "from importlinter.cli import lint_imports_command as c; c()"),
}

_begun: dict[str, "subprocess.Popen[str]"] = {}


def begin(rule: str) -> "subprocess.Popen[str]":
    """Return the process that checks a rule, started by the first call."""
    if rule not in _begun:
        _begun[rule] = subprocess.Popen(
            [sys.executable, *RULES[rule]],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
    return _begun[rule]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.timeout(400)
def test_the_house_is_in_order(rule: str) -> None:
    process = begin(rule)
    said, _ = process.communicate()
    assert process.returncode == 0, said
