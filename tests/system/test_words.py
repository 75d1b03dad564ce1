"""What commands tell people beside their results."""

import re
import urllib.request

import pytest

from tests.system.conftest import Command

HERE = "localhost gpus=none workers=1 nthreads=1 memory=1GiB"


@pytest.mark.slow
def test_where_the_dashboard_is_served_is_told(gputui: Command) -> None:
    done = gputui("up", HERE, "--name", "my lab", "--dashboard", "0")
    assert "gputui attach 'my lab'; gputui down 'my lab'" in done.stderr
    told = re.search(r"dashboard at (http://127\.0\.0\.1:\d+/status)", done.stderr)
    assert told, done.stderr
    assert urllib.request.urlopen(told[1], timeout=30).status == 200
    done = gputui("--attach", "my lab", "--run", "mean", "-p", "rows=1000")
    assert told[0] in done.stderr


def test_an_unknown_theme_is_refused_before_anything_starts(gputui: Command) -> None:
    terminal = gputui.open("--theme", "nope")
    terminal.sees("known: ", "and Textual's own")
    assert terminal.exit_status == 2
    assert gputui("ls").stdout == ""
