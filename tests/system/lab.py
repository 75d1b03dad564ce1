"""A cluster that stays, for tests that need one, but none of their own.

A module of tests says `lab = running_lab`, and all its tests share the cluster.
"""

import contextlib
import fcntl
import io
import json
import os
import pty
import re
import subprocess
import sys
import termios
from collections.abc import Iterator
from typing import Any

import pytest

from tests.system.conftest import Command

HERE = "localhost gpus=none workers=2 nthreads=1 memory=1GiB"


@pytest.fixture(scope="module")
def running_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Command]:
    """The command, with folders of its own, beside a running cluster called lab."""
    folder = tmp_path_factory.mktemp("lab")
    for name in ("state", "run"):
        (folder / name).mkdir(mode=0o700)
    env = {
        "XDG_STATE_HOME": str(folder / "state"),
        "XDG_RUNTIME_DIR": str(folder / "run"),
        "XDG_CACHE_HOME": str(folder.parent / "cache"),
        "GPUTUI_TEST": str(folder),
    }
    command = Command(folder, runtime=folder / "run", env=env)
    command.ok("up", HERE, "--name", "lab")
    yield command
    command.end()
    command.end_clusters()
    command.assert_nothing_left()


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


@contextlib.contextmanager
def in_a_terminal(
    command: Command, *arguments: str, stdin: int | None = None
) -> Iterator[tuple["subprocess.Popen[bytes]", io.FileIO]]:
    """Run the command in the foreground of a terminal; yield it, and what a person has of it."""
    ours, its = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "gputui", *arguments],
        stdin=its if stdin is None else stdin,
        stdout=its,
        stderr=its,
        cwd=command.folder,
        env={**os.environ, **command.env, "TERM": "xterm", "COLUMNS": "80", "LINES": "24"},
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(1, termios.TIOCSCTTY, 0),
    )
    os.close(its)
    with os.fdopen(ours, "r+b", buffering=0) as terminal:
        try:
            yield process, terminal
        finally:
            process.kill()
            process.wait()


MOVE = re.compile(rb"\x1b\[\d+;\d+H")


def shown(terminal: io.FileIO, last: bytes) -> bytes:
    """Return what a terminal shows up to these words.

    Blanks that stand there already are not sent again: the cursor moves over them.
    """
    seen = b""
    while last not in seen and last not in MOVE.sub(b" ", seen):
        seen += terminal.read(1000)
    return seen
