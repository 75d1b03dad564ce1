"""No release with a known hole may be installed: the least versions are beyond each of them."""

import re
import tomllib
from pathlib import Path

import pytest

from gputui.fleet.deploy import bootstrap

PROJECT = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())
MENDED_IN = {
    "bokeh": "3.8.2",
    "cryptography": "44.0.1",
    "scikit-learn": "1.5",
    "setuptools": "78.1.1",
    "torch": "2.6",
}
"""The first release without what was found in those before."""


def required() -> list[str]:
    """Return every requirement of this project and of what builds it."""
    extras = PROJECT["project"]["optional-dependencies"].values()
    listed = [PROJECT["build-system"]["requires"], PROJECT["project"]["dependencies"], *extras]
    return [requirement for requirements in listed for requirement in requirements]


def release(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(".")))


def test_a_requirement_admits_no_release_with_a_known_hole() -> None:
    least = {}
    for requirement in required():
        name, bounds = re.fullmatch(r"([A-Za-z0-9-]+)(?:\[[^]]*\])?(.*)", requirement).groups()
        if name in MENDED_IN:
            least[name] = re.search(r">=([0-9.]+)", bounds)[1]
            assert release(least[name]) >= release(MENDED_IN[name]), requirement
    assert {"bokeh", "cryptography", "scikit-learn", "torch"} <= least.keys()


@pytest.mark.parametrize("name", sorted({*bootstrap.NEEDED, *bootstrap.USED_BY_TASKS}))
def test_hosts_are_given_the_release_that_is_installed_here(name: str) -> None:
    pinned = dict(pin.split("==") for pin in bootstrap.pins())
    if name in MENDED_IN and name in pinned:
        assert release(pinned[name]) >= release(MENDED_IN[name])
    assert name in pinned or name not in bootstrap.NEEDED
