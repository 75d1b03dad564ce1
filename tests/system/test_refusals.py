"""What keeps a cluster from starting, or a run from its workers, is said with its cause and fix."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from tests.system.conftest import Command

ONE = "localhost gpus=none workers=1 nthreads=1 memory=512MiB"
SMALL = ("--run", "random-sum", "-p", "size=100", "--quiet")


@pytest.fixture(params=["taken", "of the system"])
def refused(request: pytest.FixtureRequest, gputui: Command) -> Iterator[tuple[str, str]]:
    """A port that the command cannot have, and why."""
    if request.param == "taken":
        with socket.create_server(("", 0)) as server:
            yield str(server.getsockname()[1]), "Address already in use"
    elif os.geteuid() != 0:
        pytest.skip("only root can give up being root")
    else:
        kept = "-all,+dac_override"  # no port below 1024, and still these files
        gputui.before = ("setpriv", "--bounding-set", kept, "--inh-caps", kept)
        yield "80", "Permission denied"


def test_a_scheduler_port_that_cannot_be_had_is_named_with_the_setting(
    gputui: Command, refused: tuple[str, str]
) -> None:
    port, why = refused
    gputui.env["DASK_GPUTUI__SCHEDULER__PORT"] = port
    done = gputui(ONE, *SMALL)
    assert done.returncode == 3
    assert f"port {port}: {why}; set gputui.scheduler.port" in done.stderr


@pytest.mark.parametrize("command", [("up",), SMALL])
def test_a_dashboard_port_that_cannot_be_had_is_refused_before_anything_starts(
    gputui: Command, refused: tuple[str, str], command: tuple[str, ...]
) -> None:
    port, why = refused
    done = gputui(*command, "--dashboard", port)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"--dashboard {port}: {why}; name another one, or 0 for any" in done.stderr
    assert gputui.files() == []


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"a: [b\nc: }", "dask.yaml:2: expected ',' or ']'"),
        (b"a: 1\n\tb: 2", "dask.yaml:2: found character"),
        (b"a: 1\ngputui: 5", "dask.yaml:2: gputui: 5 is not a mapping"),
        (b"a: 1\n\ndistributed: 5", "dask.yaml:3: distributed: 5 is not a mapping"),
        (b"a: 1\nb: \xff", "dask.yaml:2: not a text in UTF-8"),
        (b"- 5", "dask.yaml:1: a list, where `key: value` is expected"),
    ],
)
def test_a_broken_dask_configuration_is_exit_2_with_its_file_and_line(
    gputui: Command, content: bytes, says: str
) -> None:
    path = gputui.folder / "dask.yaml"
    path.write_bytes(content)
    gputui.env["DASK_CONFIG"] = str(path)
    done = gputui(ONE, *SMALL)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert f"{gputui.folder}/{says}" in done.stderr


@pytest.mark.slow
def test_more_workers_than_the_hosts_have_room_for_are_said_and_refused_if_asked(
    gputui: Command,
) -> None:
    done = gputui.ok(ONE, *SMALL, "--workers", "5")
    assert "1 of 5 workers: the hosts have no room for more; workers=" in done.stderr
    done = gputui(ONE, *SMALL, "--workers", "5", "--min-workers", "2")
    assert done.returncode == 3
    assert "1 of at least 2 workers came up" in done.stderr


def test_up_without_bokeh_serves_no_dashboard(
    in_process: Callable[..., "subprocess.CompletedProcess[str]"], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "bokeh", None)
    done = in_process("up", "--dashboard", "0")
    assert done.returncode == 2
    assert "--dashboard needs bokeh: pip install 'gputui[report]'" in done.stderr
