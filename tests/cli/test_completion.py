"""`tab` in a shell: commands, presets, parameters, clusters, runs, topics and files."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gputui.cli.completion import SHELLS
from gputui.protocol.connection_file import ConnectionFile, NameLock
from tests.terminals import Emulated

RUN = "20260102-030405-svd-abcd"


def completed(line: str, runtime: Path) -> list[str]:
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
        ("gputui runs la", ["plain,last"]),
        ("gputui claims gpu-a --rea", ["plain,--readonly"]),
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
    lock.publish(ConnectionFile("lab", "id", os.getpid(), 1.5, "/x.sock", "0.1.0"))
    try:
        assert completed(line, tmp_path) == ["plain,lab"]
    finally:
        lock.release()


INTERACTIVE = {
    "bash": ("--norc --noprofile -i", 'eval "$(gputui completion bash)"'),
    "zsh": ("-f -i", 'autoload -U compinit; compinit -u -D; eval "$(gputui completion zsh)"'),
    "fish": ("--no-config -i", "gputui completion fish | source"),
}
"""Each shell's words for a start without the user's files, and what teaches it."""
TYPED = {
    "gputui att": "gputui attach ",
    "gputui --rea": "gputui --readonly ",
    "gputui --run sv": "gputui --run svd ",
    "gputui --run svd -p ro": "gputui --run svd -p rows=",
    "gputui --attach la": "gputui --attach lab ",
    "gputui down la": "gputui down lab ",
    "gputui runs show 20": f"gputui runs show {RUN} ",
    "gputui runs 20": f"gputui runs {RUN} ",
    "gputui help sec": "gputui help security ",
    "gputui up hos": "gputui up hosts.txt ",
    "gputui hos": "gputui hosts.txt ",
    "gputui up 'gpu-a gp": "gputui up 'gpu-a gpus=",
    "gputui 'gpu-a gpus=0 mem": "gputui 'gpu-a gpus=0 memory=",
}
"""What is typed in front of the tab → the line behind it, up to where the next word is typed."""


@pytest.mark.slow
@pytest.mark.parametrize("shell", SHELLS)
def test_tab_completes_in_the_shell_itself(
    shell: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not (path := shutil.which(shell)):
        pytest.skip(f"needs {shell}")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    (tmp_path / "hosts.txt").touch()
    record = tmp_path / "gputui/runs" / RUN / "run.json"
    record.parent.mkdir(parents=True)
    record.touch()
    env = {
        "HOME": str(tmp_path),
        "XDG_STATE_HOME": str(tmp_path),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PS1": "> ",
    }
    words, teach = INTERACTIVE[shell]
    lock = NameLock("lab", "id")
    lock.publish(ConnectionFile("lab", "id", os.getpid(), 1.5, "/x.sock", "0.1.0"))
    terminal = Emulated.start(path, *words.split(), env=env, cells=(100, 30))
    try:
        terminal.type(f"cd {tmp_path}; {teach}; echo re''ady\r".encode())
        terminal.sees("\nready")
        for number, (typed, completed) in enumerate(TYPED.items()):
            terminal.type(f"{typed}\t".encode())
            terminal.sees(completed.rstrip())
            terminal.type(f"@{number}".encode())
            closed = "'" * (shell == "bash" and "'" in typed)  # readline closes what was opened
            terminal.sees(f"{completed}{closed}@{number}")
            terminal.type(b"\x15")  # the line is empty again
    finally:
        lock.release()
        terminal.kill()
