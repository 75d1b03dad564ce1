"""The house rules, as tests: lint, format, types, and who may import whom."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize(
    "command",
    [
        ("ruff", "check", "."),
        ("ruff", "format", "--check", "."),
        ("mypy",),
        ("importlinter.cli", "--config", "pyproject.toml"),
    ],
    ids=lambda command: command[0],
)
@pytest.mark.timeout(400)
def test_the_house_is_in_order(command: tuple[str, ...]) -> None:
    module, *arguments = command
    run = [sys.executable, "-m", module, *arguments]
    if module == "importlinter.cli":
        run = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as c; c()"]
    done = subprocess.run(run, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
