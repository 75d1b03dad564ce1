"""Clusters that take free GPUs only, claimed before their workers start."""

import signal
import time
from pathlib import Path

import pytest

from tests.system.conftest import Command, wait_until
from tests.system.test_sharing import UUID, gpus, gputui, holding  # noqa: F401

SCRIPT = """
from dask.distributed import Client
with Client() as client:
    print(sorted(name for name in client.has_what() and
                 [w["id"] for w in client.scheduler_info(n_workers=-1)["workers"].values()]))
"""


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "names.py"
    path.write_text(SCRIPT)
    return str(path)


def test_a_run_takes_free_gpus_only(gputui: Command, script: str) -> None:  # noqa: F811
    holding(gputui, "-n", "2")
    done = gputui("--run", script, "--gpus", "2")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "['localhost:gpu2', 'localhost:gpu3']\n"


def test_a_run_without_wait_says_who_has_the_gpus(gputui: Command, script: str) -> None:  # noqa: F811
    holding(gputui, "-n", "3", "--for", "1h", "--note", "training")
    done = gputui("--run", script, "--gpus", "2")
    assert (done.returncode, done.stdout) == (3, "")
    assert "too few free GPUs: 2 asked for, 1 free" in done.stderr
    assert " · training · for 59m more" in done.stderr
    assert "add --wait 2h to stand in line" in done.stderr


def test_a_run_waits_for_gpus_and_takes_what_is_freed(
    gputui: Command,  # noqa: F811
    script: str,
) -> None:
    first = holding(gputui, "-n", "3")
    second = gputui.start("--run", script, "--gpus", "4", "--wait", "2m")
    wait_until(lambda: all(gpu["waiting"] for gpu in gpus(gputui)), 30)
    assert second.poll() is None
    first.send_signal(signal.SIGINT)
    said, _ = second.communicate(timeout=60)
    assert second.returncode == 0 and said.count("localhost:gpu") == 4


def test_a_line_of_the_hosts_file_gives_so_many_free_gpus(
    gputui: Command,  # noqa: F811
    script: str,
) -> None:
    holding(gputui, "-n", "1")
    done = gputui("localhost gpus=free:2", "--run", script)
    assert done.stdout == "['localhost:gpu1', 'localhost:gpu2']\n", done.stderr


def test_a_cluster_that_is_left_running_promises_its_end(gputui: Command) -> None:  # noqa: F811
    done = gputui("up", "--name", "lab", "--gpus", "2", "--for", "3h")
    assert done.returncode == 0, done.stderr
    try:
        claims = [gpu["claim"] for gpu in gpus(gputui) if gpu["claim"]]
        assert [claim["text"] for claim in claims] == ["cluster lab"] * 2
        assert all(3500 * 3 < claim["until"] - time.time() <= 3600 * 3 for claim in claims)
    finally:
        assert gputui("down", "lab").returncode == 0
    assert all(gpu["free"] for gpu in gpus(gputui))


def test_an_option_for_free_gpus_that_does_nothing_is_refused(gputui: Command) -> None:  # noqa: F811
    for option in ("--wait", "2h"), ("--memory-free", "1GiB"):
        done = gputui("up", *option)
        assert done.returncode == 2
        assert f"{option[0]}: for --gpus N, or gpus=free:N in HOSTS" in done.stderr
