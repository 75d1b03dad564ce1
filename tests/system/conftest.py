"""The whole thing, as people run it: the command in a process of its own, and what it leaves."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

GONE_S = 20
"""Within so long nothing of a dead cluster may be left."""


@dataclass
class Command:
    """Runs `gputui` with folders of its own, and finds what it left running."""

    folder: Path
    env: dict[str, str] = field(default_factory=dict)

    def start(self, *arguments: str, **more: Any) -> "subprocess.Popen[str]":
        """Start the command."""
        return subprocess.Popen(
            [sys.executable, "-m", "gputui", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.folder,
            env={**os.environ, **self.env},
            **more,
        )

    def __call__(
        self, *arguments: str, timeout_s: float = 90
    ) -> "subprocess.CompletedProcess[str]":
        """Run the command to its end."""
        process = self.start(*arguments)
        try:
            out, err = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            pytest.fail(f"gputui {' '.join(arguments)} did not end\n{out}\n{err}")
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)

    def json(self, *arguments: str) -> Any:
        """Run the command to its good end, and return the object that it printed."""
        done = self(*arguments, "--json", "--quiet")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def left(self) -> list[str]:
        """Return the command lines of this command's processes that still run."""
        mark = f"GPUTUI_TEST={self.folder}".encode()
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                ours = mark in (process / "environ").read_bytes().split(b"\0")
                words = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            if ours and words:
                found.append(f"{process.name} {words}")
        return found

    def assert_nothing_left(self) -> None:
        """Wait until no process is left."""
        wait_until(lambda: not self.left(), GONE_S, lambda: f"left: {self.left()}")


def wait_until(
    holds: Callable[[], object], bound_s: float, why: Callable[[], str] = lambda: ""
) -> None:
    """Wait until a condition holds; fail after the bound."""
    end = time.monotonic() + bound_s
    while not holds():
        assert time.monotonic() < end, why() or f"not within {bound_s} s"
        time.sleep(0.05)


@pytest.fixture
def gputui(tmp_path: Path) -> Iterator[Command]:
    """The command, with a state and a runtime folder of its own; nothing of it may be left."""
    for name in ("state", "run", "cache"):
        (tmp_path / name).mkdir(mode=0o700)
    env = {
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "XDG_RUNTIME_DIR": str(tmp_path / "run"),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "GPUTUI_TEST": str(tmp_path),
    }
    command = Command(tmp_path, env)
    yield command
    command("down", "--all")
    command.assert_nothing_left()
