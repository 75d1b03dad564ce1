"""The head's log does not grow without bound."""

import logging
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gputui.head.__main__ import KEPT_S, LogFile, log_folder, log_to_file


def test_a_full_log_begins_again_and_two_files_before_are_kept_for_its_user(
    tmp_path: Path,
) -> None:
    log = LogFile(tmp_path / "lab.log", file_bytes=1_000)
    for _ in range(100):
        log.handle(logging.LogRecord("head", logging.INFO, "", 0, "x" * 99, None, None))
    log.close()
    found = {path.name: path.stat() for path in tmp_path.iterdir()}
    assert sorted(found) == ["lab.log", "lab.log.1", "lab.log.2"]
    assert max(each.st_size for each in found.values()) <= 1_000
    assert {each.st_mode & 0o777 for each in found.values()} == {0o600}


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
