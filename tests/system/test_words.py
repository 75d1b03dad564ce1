"""What commands tell people beside their results."""

import re
import urllib.request

from tests.system.conftest import Command

HERE = "localhost gpus=none workers=1 nthreads=1 memory=1GiB"


def test_where_the_dashboard_is_served_is_told(gputui: Command) -> None:
    done = gputui("up", HERE, "--name", "my lab", "--dashboard", "0")
    assert "gputui attach 'my lab'; gputui down 'my lab'" in done.stderr
    told = re.search(r"dashboard at (http://127\.0\.0\.1:\d+/status)", done.stderr)
    assert told, done.stderr
    assert urllib.request.urlopen(told[1], timeout=30).status == 200
    done = gputui("--attach", "my lab", "--run", "mean", "-p", "rows=1000")
    assert told[0] in done.stderr
