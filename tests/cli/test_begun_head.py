"""A head's Python starts before its configuration is known: what is left of one that gets none."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gputui.cli import run_command
from gputui.client.head_process import HeadProcess, begun_head
from gputui.client.start import spawn_head
from gputui.process.procfs import environment
from gputui.protocol.starter import ConfigureHead
from tests.processes import lives
from tests.system.conftest import wait_until

BOUND_S = 20


@pytest.mark.parametrize(
    "words",
    [
        ("localhost", "--run", "no-such-preset"),
        ("localhost", "--run", "svd", "-p", "rows=none"),
        ("no-such-file.txt", "--exec", "--", "true"),
        ("localhost", "--exec"),
        ("localhost", "--run", "svd", "--wait", "1h", "--readonly"),
    ],
)
def test_wrong_words_leave_no_head(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, runtime: Path
) -> None:
    begun: list[HeadProcess] = []

    class Noted(HeadProcess):
        def __init__(self) -> None:
            super().__init__()
            begun.append(self)

    monkeypatch.setattr(begun_head.__module__ + ".HeadProcess", Noted)
    assert run_command([*words]) == 2
    assert [head.returncode for head in begun] == [-signal.SIGKILL]
    assert not [*runtime.glob("gputui/*")]


def test_where_none_can_begin_the_run_says_why(
    monkeypatch: pytest.MonkeyPatch, runtime: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("gputui.client.head_process.IS_LINUX", False)
    assert run_command(["localhost", "--run", "no-such-preset"]) == 2
    assert "unknown preset" in capsys.readouterr().err
    assert run_command(["localhost", "--run", "smoke"]) == 2
    assert "clusters start on Linux" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ("--attach", "no-such-cluster", "--run", "svd"),
        ("localhost", "--run", "./no-such-file.py:PRESET"),
    ],
)
def test_none_begins_for_what_attaches_or_adds_to_the_path(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "gputui.client.head_process.begun_head", lambda: pytest.fail("it began one")
    )
    assert run_command([*words]) == 2


def test_a_head_whose_starter_is_killed_before_it_configures_ends_by_itself(runtime: Path) -> None:
    start = "import os; from gputui.client.head_process import HeadProcess"
    killed = f"{start}; print(HeadProcess().pid, flush=True); os.kill(os.getpid(), 9)"
    said = subprocess.run([sys.executable, "-c", killed], capture_output=True).stdout
    wait_until(lambda: not lives(int(said)), BOUND_S)
    assert not [*runtime.glob("gputui/*")]


def test_a_head_that_began_before_a_preset_set_something_is_not_used(
    monkeypatch: pytest.MonkeyPatch, runtime: Path
) -> None:
    with begun_head() as begun:
        monkeypatch.setenv("SET_BY_A_PRESET", "on")
        head = spawn_head(ConfigureHead("made", "localhost gpus=none workers=1"), begun)
        try:
            wait_until(lambda: any(environment(head.pid)))  # empty for a moment as it starts
            assert b"SET_BY_A_PRESET=on" in environment(head.pid)
        finally:
            head.end()
    assert begun is not None and begun.returncode == -signal.SIGKILL
