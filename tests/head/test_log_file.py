"""The head's log does not grow without bound."""

import logging
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gputui.head.__main__ import KEPT_S, LogFile, log_folder, log_to_file


def write(log: LogFile, text: str) -> None:
    log.handle(logging.LogRecord("head", logging.INFO, "", 0, text, None, None))


def test_a_full_log_begins_again_and_two_files_before_are_kept(tmp_path: Path) -> None:
    log = LogFile(tmp_path / "lab.log", file_bytes=1_000)
    for _ in range(100):
        write(log, "x" * 99)
    log.close()
    sizes = {path.name: path.stat().st_size for path in tmp_path.iterdir()}
    assert sorted(sizes) == ["lab.log", "lab.log.1", "lab.log.2"]
    assert max(sizes.values()) <= 1_000


def test_only_its_user_may_read_a_log_after_a_rotation_too(tmp_path: Path) -> None:
    log = LogFile(tmp_path / "lab.log", file_bytes=100)
    for _ in range(3):
        write(log, "x" * 60)
    log.close()
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}


def test_what_is_printed_is_in_the_file_that_was_the_log(tmp_path: Path) -> None:
    program = (
        "import logging, os, sys; from pathlib import Path; from gputui.head.__main__ import *;"
        "log = LogFile(Path(sys.argv[1]), file_bytes=50); log.take_output();"
        "logging.basicConfig(handlers=[log], format='%(message)s');"
        "logging.warning('x' * 40); logging.warning('y' * 40); os.write(2, b'printed')"
    )
    subprocess.run([sys.executable, "-c", program, tmp_path / "lab.log"], check=True)
    assert (tmp_path / "lab.log.1").read_text() == "x" * 40 + "\nprinted"


def test_logs_that_no_head_writes_any_more_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(logging, "basicConfig", lambda **_: None)
    old, recent = log_folder() / "old.log", log_folder() / "recent.log"
    for path in (old, recent):
        path.touch()
    os.utime(old, (0, time.time() - KEPT_S - 1))
    log_to_file("lab").close()
    assert not old.exists()
    assert recent.exists()
