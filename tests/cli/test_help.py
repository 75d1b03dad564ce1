"""`gputui help`: topics, plain where nobody looks at it, drawn on a terminal."""

import sys
from pathlib import Path

import pytest

from gputui.cli.listing import FOLDER, show_help, topics
from gputui.errors import UsageError
from tests.terminals import Emulated


def test_without_a_topic_all_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    show_help(None)
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert listed == [*topics()]
    assert {"hosts", "ssh", "python", "security", "contributing", "settings"} <= {*listed}


def test_in_a_pipe_a_topic_is_its_markdown(capsys: pytest.CaptureFixture[str]) -> None:
    show_help("hosts")
    assert capsys.readouterr().out == (FOLDER / "hosts.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("typed", "hint"),
    [
        ("Secu", "did you mean security"),
        ("notebook", "did you mean python"),
        ("mac", "did you mean ssh"),
        ("zzzz", "topics are arrays, changes, contributing"),
    ],
)
def test_a_topic_that_does_not_exist_is_refused_with_the_nearest(typed: str, hint: str) -> None:
    with pytest.raises(UsageError, match=f"no help topic '{typed}'; {hint}"):
        show_help(typed)


def test_on_a_terminal_a_topic_is_drawn_and_no_markdown_is_left(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "gputui", "help", "settings"]
    screen = Emulated.start(*command, env={"HOME": str(tmp_path), "LESS": ""}, cells=(100, 50))
    try:
        screen.sees("Settings", "stage-timeout")
        assert "```" not in screen.text
    finally:
        screen.kill()
