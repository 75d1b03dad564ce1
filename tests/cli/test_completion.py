"""`tab` in a shell: commands, presets, parameters, clusters, runs, topics and files."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gputui.cli.completion import SHELLS, script
from gputui.protocol.connection_file import ConnectionFile, NameLock


def completed(line: str, runtime: Path) -> list[str]:
    """Return what the last word of a line is completed to."""
    words = line.split(" ")
    done = subprocess.run(
        [sys.executable, "-m", "gputui"],
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(runtime),
            "XDG_RUNTIME_DIR": str(runtime),
            "COMP_WORDS": line,
            "COMP_CWORD": str(len(words) - 1),
            "_GPUTUI_COMPLETE": "bash_complete",
        },
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("gputui att", ["plain,attach"]),
        ("gputui --run sv", ["plain,svd"]),
        ("gputui hosts.txt --run sv", ["plain,svd"]),
        ("gputui --run ./mi", ["file,./mi"]),
        ("gputui --run svd -p ro", ["plain,rows="]),
        ("gputui --rea", ["plain,--readonly"]),
        ("gputui hos", ["file,hos"]),
        ("gputui help sec", ["plain,security"]),
        ("gputui presets sm", ["plain,smoke"]),
        ("gputui runs show la", ["plain,last"]),
    ],
)
def test_a_word_is_completed(line: str, found: list[str], tmp_path: Path) -> None:
    assert completed(line, tmp_path) == found


@pytest.mark.parametrize("line", [f"gputui {w} la" for w in ("attach", "ls", "down", "--attach")])
def test_running_clusters_are_completed(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    lock = NameLock("lab", "id")
    lock.publish(ConnectionFile("lab", "id", os.getpid(), "/x.sock", 1.5, "0.1.0"))
    try:
        assert completed(line, tmp_path) == ["plain,lab"]
    finally:
        lock.release()


@pytest.mark.parametrize("shell", SHELLS)
def test_each_shell_has_a_script(shell: str) -> None:
    assert "_GPUTUI_COMPLETE" in script(shell)


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_takes_the_script() -> None:
    done = subprocess.run(["bash", "-n"], input=script("bash"), capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
