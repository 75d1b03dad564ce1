"""The parts of Textual that nobody promised are listed, and missed in words where they are gone."""

import importlib

import pytest
from textual.drivers.linux_driver import LinuxDriver

from gputui.errors import GputuiError
from gputui.tui.terminal import PRIVATE, require


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
