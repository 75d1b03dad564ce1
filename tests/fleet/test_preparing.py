"""Hosts on which no environment can be made: the reason and the hint are those of the host."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gputui.fleet.deploy import preparing


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Path]:
    """A folder for a file system of its own."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount")
    yield tmp_path
    subprocess.run(["umount", tmp_path])


def failure(home: Path) -> tuple[str, str]:
    """Return the reason and the hint of a bootstrap below a folder."""
    order = {
        "version": f"{sys.version_info.major}.{sys.version_info.minor}",
        "environment": str(home / "share/env"),
        "packages": ["dask"],
        "gpus": False,
        "cupy": "",
        "lock": "",
        "wheels": [],
        "index": "http://127.0.0.1:9",
        "host_settings": False,
        "builds": False,
    }
    command = [sys.executable, preparing.__file__]
    environ = {**os.environ, "PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, input=json.dumps(order) + "\n", env=environ,
                          capture_output=True, text=True)  # fmt: skip
    assert "Traceback" not in done.stderr
    last = json.loads(done.stdout.splitlines()[-1])
    return last["failed"], last["hint"]


def test_a_full_disk_is_the_reason_and_no_missing_package(mounted: Path) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "none", mounted], check=True)
    reason, hint = failure(mounted)
    assert reason == "the environment could not be made: see above"
    assert hint.startswith("free some disk space there: ") and "MiB are left" in hint


def test_a_home_that_is_read_only_is_named_with_another_way(mounted: Path) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "none", mounted], check=True)
    reason, hint = failure(mounted)
    assert reason == f"{mounted}/share: Read-only file system"
    assert "python=" in hint
