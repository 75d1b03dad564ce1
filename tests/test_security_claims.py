"""Each claim of `gputui help security` names tests that are there."""

import re
from importlib.resources import files
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TEXT = (files("gputui") / "help" / "security.md").read_text()
ROWS = [row for row in TEXT.splitlines() if row.startswith("| ")][1:]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.split("|")[1].strip())
def test_a_claim_of_security_has_a_test_that_attacks(row: str) -> None:
    _, _, claim, tests, _ = row.split("|")
    named = re.findall(r"`(tests/[^`]+)`", tests)
    assert claim.strip() and named
    for name in named:
        found = [ROOT / name] if name.endswith(".py") else [*(ROOT / name).glob("test_*.py")]
        assert any("def test_" in path.read_text() for path in found), name


def test_what_does_not_hold_is_said() -> None:
    _, _, rest = TEXT.partition("## What does not hold")
    for words in ("certificate can run code", "trusted until", "even if it was removed", "Root"):
        assert words in rest
