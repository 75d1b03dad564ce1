"""Folders that belong to this user alone."""

import errno
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from gputui import folders
from gputui.fleet.deploy import loader


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder with a path short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="gt-") as name:
        yield Path(name)


@pytest.fixture(autouse=True)
def _environment(short: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (short / "run").mkdir()
    (short / "tmp").mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(short / "run"))
    monkeypatch.setenv("TMPDIR", str(short / "tmp"))


def own(short: Path) -> Path:
    return short / "tmp" / f"gputui-{os.getuid()}"


def test_the_runtime_folder_is_for_this_user_only(short: Path) -> None:
    assert folders.runtime_folder() == short / "run" / "gputui"
    assert (short / "run" / "gputui").stat().st_mode & 0o777 == 0o700


def test_a_folder_that_others_may_enter_is_closed_to_them(short: Path) -> None:
    (short / "run" / "gputui").mkdir(mode=0o777)
    (short / "run" / "gputui").chmod(0o777)
    assert folders.runtime_folder().stat().st_mode & 0o777 == 0o700


def test_a_link_is_not_followed(short: Path) -> None:
    (short / "elsewhere").mkdir(mode=0o755)
    (short / "run" / "gputui").symlink_to(short / "elsewhere")
    assert folders.runtime_folder() == own(short)
    assert (short / "elsewhere").stat().st_mode & 0o777 == 0o755


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to give a folder away")
def test_another_users_folder_is_not_used(short: Path) -> None:
    (short / "run" / "gputui").mkdir(mode=0o700)
    os.chown(short / "run" / "gputui", 12345, -1)
    assert folders.runtime_folder() == own(short)
    with pytest.raises(OSError, match="it belongs to user 12345"):
        folders.own_folder(short / "run" / "gputui")


def test_a_folder_whose_path_is_too_long_for_a_socket_is_passed_over(
    short: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (short / ("x" * 80)).mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(short / ("x" * 80)))
    assert folders.runtime_folder() == own(short)
    monkeypatch.setenv("TMPDIR", str(short / ("x" * 80)))
    assert folders.runtime_folder() == Path("/tmp") / f"gputui-{os.getuid()}"


def test_a_file_that_others_may_write_is_not_read(short: Path) -> None:
    path = short / "file"
    path.write_bytes(b"x")
    path.chmod(0o600)
    assert folders.read_own_file(path) == b"x"
    path.chmod(0o622)
    with pytest.raises(OSError, match="may be written by others"):
        folders.read_own_file(path)
    (short / "link").symlink_to(path)
    with pytest.raises(OSError, match="symbolic"):
        folders.read_own_file(short / "link")


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, for a /tmp of its own")
def test_a_folder_that_another_user_made_first_is_replaced_for_every_process() -> None:
    script = """
import os, subprocess
from gputui.folders import runtime_folder
theirs = "mount -t tmpfs none /tmp && mkdir -m 700 /tmp/gputui-0 && chown 12345 /tmp/gputui-0"
subprocess.run(theirs, shell=True, check=True)
for _ in range(2):
    if not os.fork():
        print(runtime_folder(), flush=True)
        os._exit(0)
    os.wait()
"""
    environ = {key: os.environ[key] for key in ("PATH",)}
    command = ["unshare", "-m", sys.executable, "-c", script]
    done = subprocess.run(command, env=environ, capture_output=True, text=True)
    first, second = done.stdout.splitlines()
    assert first == second and first.startswith("/tmp/gputui-0-"), done.stderr
    said = f"gputui: /tmp/gputui-0: it belongs to user 12345; {first} is used instead\n"
    assert done.stderr == said


def test_a_lock_on_a_file_system_without_locks_leaves_no_descriptor(
    short: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(descriptor: int, how: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(folders.fcntl, "flock", refuse)
    before = os.listdir("/proc/self/fd")  # noqa: PTH208
    with pytest.raises(OSError, match="No locks available"):
        folders.locked_file(short / "lock")
    assert os.listdir("/proc/self/fd") == before  # noqa: PTH208


@pytest.mark.skipif(os.getuid() != 0, reason="another user is played by root alone")
def test_a_folder_is_removed_with_what_its_owner_made_read_only(open_folder: Path) -> None:
    kept, own = open_folder / "kept", open_folder / "own"
    kept.mkdir(0o755)
    code = (
        "import os, sys; from pathlib import Path; from gputui.folders import remove_folder\n"
        "os.setresuid(*[61001] * 3)\n"
        "own, kept = map(Path, sys.argv[1:]); (own / 'a/b').mkdir(parents=True)\n"
        "(own / 'a/b/f').touch(); (own / 'a/link').symlink_to(kept)\n"
        "(own / 'a/b').chmod(0o500); (own / 'a').chmod(0o500)\n"
        "remove_folder(own)"
    )
    subprocess.run([sys.executable, "-c", code, own, kept], check=True)
    assert not own.exists()
    assert kept.is_dir() and kept.stat().st_mode & 0o777 == 0o755


def test_a_base_folder_that_is_not_absolute_counts_for_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR"):
        monkeypatch.setenv(name, "here")
    usual = tmp_path / "home"
    assert folders.state_folder() == usual / ".local/state/gputui"
    assert folders.cache_folders()[0] == loader.folders()[0] == usual / ".cache/gputui"
    assert folders.runtime_folder().is_absolute() and not Path("here").exists()
