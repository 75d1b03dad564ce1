"""gputui packed for hosts."""

import ast
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from gputui.fleet.deploy import remote


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "gputui"


@pytest.mark.slow
def test_it_has_what_agents_and_tasks_import_and_nothing_else() -> None:
    names = set(zipfile.ZipFile(remote.load_pack().path).namelist())
    link = "gputui/protocol/agent.py"
    assert {"__main__.py", "pynvml.py", link, f"{link}c"} <= names
    assert not [name for name in names if name.startswith(("gputui/tui/", "gputui/cli/"))]


def test_nothing_in_it_imports_what_stays_at_home() -> None:
    archive = zipfile.ZipFile(remote.load_pack().path)
    sources = [name for name in archive.namelist() if name.endswith(".py")]
    imported = {
        node.module or ""
        for name in sources
        for node in ast.walk(ast.parse(archive.read(name)))
        if isinstance(node, ast.ImportFrom)
    }
    own = {name.replace(".", "/") for name in imported if name.startswith("gputui.")}
    own.remove("gputui/client/remote_head")  # for `connect("user@login:NAME")`, in that call only
    assert {name for name in own if not {f"{name}.py", f"{name}/__init__.py"} & {*sources}} == set()


def test_two_processes_make_the_same_bytes() -> None:
    make = "from gputui.fleet.deploy import remote; print(remote.load_pack().hash)"
    hashes = {
        subprocess.check_output(
            [sys.executable, "-c", make],
            env={**os.environ, "XDG_CACHE_HOME": f"{os.environ['XDG_CACHE_HOME']}{number}"},
        )
        for number in range(2)
    }
    assert hashes == {f"{remote.load_pack().hash}\n".encode()}


def test_a_second_start_reads_it_from_the_cache(cache: Path) -> None:
    first = remote.load_pack()
    (path,) = cache.iterdir()
    written = path.stat().st_ino
    assert remote.load_pack() == first
    assert path.stat().st_ino == written
    assert path.stat().st_mode & 0o077 == 0


def test_its_modules_come_compiled(tmp_path: Path) -> None:
    packed = remote.load_pack()
    show = "import gputui.protocol.agent as p; print(p.__cached__, p.__spec__.loader.archive)"
    said = subprocess.check_output(
        [sys.executable, "-S", "-c", f"import sys; sys.path[:0] = [{str(packed.path)!r}]; {show}"],
        text=True,
        cwd=tmp_path,
    )
    assert said.split() == [f"{packed.path}/gputui/protocol/agent.pyc", str(packed.path)]


def test_a_home_that_cannot_be_written_to_is_no_hindrance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert remote.load_pack().path.parent == tmp_path / f"gputui-{os.getuid()}"


def test_an_interpreter_of_two_lines_is_not_sent() -> None:
    with pytest.raises(ValueError, match="a path or a name"):
        remote.first_lines(["python3\nrm -rf x"], "", {})
