"""A cluster that stays, for tests that need one, but none of their own.

A module of tests says `lab = running_lab`, and all its tests share the cluster.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.system.conftest import Command

HERE = "localhost gpus=none workers=2 nthreads=1 memory=1GiB"


@pytest.fixture(scope="module")
def running_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Command]:
    """The command, with folders of its own, beside a running cluster called lab."""
    folder = tmp_path_factory.mktemp("lab")
    for name in ("state", "run", "cache"):
        (folder / name).mkdir(mode=0o700)
    env = {
        "XDG_STATE_HOME": str(folder / "state"),
        "XDG_RUNTIME_DIR": str(folder / "run"),
        "XDG_CACHE_HOME": str(folder / "cache"),
        "GPUTUI_TEST": str(folder),
    }
    command = Command(folder, runtime=folder / "run", env=env)
    done = command("up", HERE, "--name", "lab")
    assert done.returncode == 0, done.stderr
    yield command
    command.end()
    command("down", "--all")
    command.assert_nothing_left()


def last_run(command: Command) -> Any:
    """Return the record of the newest run."""
    return json.loads(command("runs", "show", "last", "--json").stdout)
