"""A cluster that stays, for tests that need one, but none of their own.

A module of tests says `lab = running_lab`, and all its tests share the cluster.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.system.conftest import Command, a_command

HERE = "localhost gpus=none workers=2 nthreads=1 memory=1GiB"


@pytest.fixture(scope="module")
def running_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Command]:
    """The command, with folders of its own, beside a running cluster called lab."""
    with a_command(tmp_path_factory.mktemp("lab")) as command:
        command.ok("up", HERE, "--name", "lab")
        yield command


def last_run(command: Command) -> Any:
    return json.loads(command("runs", "show", "last", "--json").stdout)


def log_of_last_run(command: Command) -> str:
    folder = command.folder / "state" / "gputui" / "runs" / last_run(command)["id"]
    return (folder / "log.txt").read_text()


def preset(command: Command, code: str, name: str = "mine", more: str = "") -> str:
    """Write a preset with the `compute` of this code, and return its name."""
    (command.folder / f"{name}.py").write_text(
        "import os, sys, time\nfrom gputui.presets import Figure, Outcome, Preset\n"
        f"{code}\nPRESET = Preset({name!r}, 'for a test', (), compute{more})\n"
    )
    return f"./{name}.py:PRESET"
