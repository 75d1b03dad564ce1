"""Each claim of `gputui help security` names tests that are there."""

import re
from importlib.resources import files
from pathlib import Path

import pytest

from gputui.model.bounds import KEPT_BYTES

ROOT = Path(__file__).parent.parent
TEXT = (files("gputui") / "help" / "security.md").read_text()
CLAIMS, _, REST = TEXT.partition("## What a head keeps of one host")
KEPT, _, NOT_HELD = REST.partition("## What does not hold")
ROWS = [row for row in CLAIMS.splitlines() if row.startswith("| ")][1:]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.split("|")[1].strip())
def test_a_claim_of_security_has_a_test_that_attacks(row: str) -> None:
    _, _, claim, tests, _ = row.split("|")
    named = re.findall(r"`(tests/[^`]+)`", tests)
    assert claim.strip() and named
    for name in named:
        found = [ROOT / name] if name.endswith(".py") else [*(ROOT / name).glob("test_*.py")]
        assert any("def test_" in path.read_text() for path in found), name


def test_the_budget_of_a_host_is_the_one_that_holds() -> None:
    said = re.findall(r"^\| (.+) \| ([0-9.]+) ([KM])iB \|$", KEPT, re.MULTILINE)
    sizes = {what: float(number) * {"K": 2**10, "M": 2**20}[unit] for what, number, unit in said}
    assert sizes == pytest.approx(KEPT_BYTES, rel=0.01)
    assert f"In all that is {round(sum(KEPT_BYTES.values()) / 2**20)} MiB" in KEPT
