"""A head's Python starts before its configuration is known: what is left of one that gets none."""

import os
import signal
from pathlib import Path

import pytest

from gputui.cli import run_command, unnamed
from gputui.client.head_process import HeadProcess, begun_head

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


def test_a_command_that_attaches_begins_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unnamed, "begun_head", lambda: pytest.fail("it began one"))
    assert run_command(["--attach", "no-such-cluster", "--run", "svd"]) == 2


def test_a_head_whose_starter_is_killed_before_it_configures_ends_by_itself(runtime: Path) -> None:
    head = HeadProcess()
    assert head.stdin and head.stdout and head.stderr
    head.stdin.close()
    assert head.wait(BOUND_S) != 0
    said = head.stdout.read() + head.stderr.read()
    head.stdout.close()
    head.stderr.close()
    assert b"Traceback" not in said
    assert not [*runtime.glob("gputui/*")]
    with pytest.raises(ProcessLookupError):
        os.killpg(head.pid, 0)
