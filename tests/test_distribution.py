"""What is distributed: all of the source, the same bytes each time, and links that hold on PyPI."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from hashlib import sha256
from pathlib import Path

import pytest

from gputui import __version__
from gputui.cli.commands import Unnamed, gputui
from tests.test_documentation import commands, flags

sdist = pytest.importorskip("hatchling.builders.sdist")
wheel = pytest.importorskip("hatchling.builders.wheel")

ROOT = Path(__file__).parent.parent
INFO = f"gputui-{__version__}.dist-info"
MANUAL = f"gputui-{__version__}.data/data/share/man/man1/gputui.1"


def built(builder: type, folder: Path) -> Path:
    (path,) = builder(str(ROOT)).build(directory=str(folder))
    return Path(path)


@pytest.mark.slow
def test_the_source_distribution_holds_every_file_and_two_builds_are_equal(tmp_path: Path) -> None:
    first = built(sdist.SdistBuilder, tmp_path / "a")
    cache = ROOT / ".hypothesis"  # Hypothesis writes there while other tests run.
    cache.mkdir(exist_ok=True)
    (cache / "written-between-two-builds").touch()
    second = built(sdist.SdistBuilder, tmp_path / "b")
    assert sha256(first.read_bytes()).digest() == sha256(second.read_bytes()).digest()
    with tarfile.open(first) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    files = ["git", "ls-files", "--cached", "--others", "--exclude-per-directory=.gitignore"]
    listed = subprocess.run(files, cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a checkout")
    there = {name for name in listed.stdout.splitlines() if (ROOT / name).exists()}
    assert held == there | {"PKG-INFO"}


def test_the_wheel_holds_the_package_with_its_help_and_manual_and_no_tests(tmp_path: Path) -> None:
    path = built(wheel.WheelBuilder, tmp_path / "a")
    again = built(wheel.WheelBuilder, tmp_path / "b")
    assert sha256(path.read_bytes()).digest() == sha256(again.read_bytes()).digest()
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        metadata = archive.read(f"{INFO}/METADATA").decode()
    assert {"gputui/help/hosts.md", "gputui/CHANGELOG.md", "gputui/py.typed"} <= {*names}
    assert {"gputui/client/notebook.js", "gputui/client/notebook.css"} <= {*names}
    assert {name.split("/")[0] for name in names} == {"gputui", INFO, MANUAL.split("/")[0]}
    assert MANUAL in names
    assert "gputui/cli/manual.py" not in names  # it needs what builds wheels
    assert "Development Status" in metadata and "Author" in metadata


def test_what_is_built_passes_the_checks_of_the_package_index(tmp_path: Path) -> None:
    pytest.importorskip("twine")
    pytest.importorskip("check_wheel_contents")
    archive, package = built(sdist.SdistBuilder, tmp_path), built(wheel.WheelBuilder, tmp_path)
    for command in (
        ["twine", "check", "--strict", str(archive), str(package)],
        ["check_wheel_contents", str(package)],
    ):
        done = subprocess.run([sys.executable, "-m", *command], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def manual(tmp_path: Path) -> Path:
    """Return the man page that is in the wheel."""
    with zipfile.ZipFile(built(wheel.WheelBuilder, tmp_path)) as archive:
        return Path(archive.extract(MANUAL, tmp_path))


def test_the_manual_has_every_command_and_option(manual: Path) -> None:
    text = manual.read_text(encoding="utf-8").replace(r"\-", "-")
    for name, command in commands(gputui):
        if not isinstance(command, Unnamed):
            assert re.search(rf"^\.SS gputui {name}\b", text, re.MULTILINE), name
    assert {flag for flag in flags() if not re.search(rf"{flag}(?![\w-])", text)} == set()


@pytest.mark.skipif(not shutil.which("lexgrog"), reason="needs man-db")
def test_man_shows_the_manual_without_a_warning_and_whatis_finds_it(manual: Path) -> None:
    said = {"LC_ALL": "C.UTF-8", "MANPAGER": "cat", "PATH": os.environ["PATH"]}
    shown = subprocess.run(
        ["man", "--warnings", "-l", str(manual)], env=said, capture_output=True, text=True
    )
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "gputui COMMAND [ARGS]…" in shown.stdout
    found = subprocess.run(["lexgrog", str(manual)], capture_output=True, text=True)
    assert "gputui - from a file of hosts" in found.stdout


def test_a_tagged_release_has_the_version_of_its_tag_and_a_section_of_changes() -> None:
    tags = subprocess.run(
        ["git", "tag", "--points-at", "HEAD", "v*"], cwd=ROOT, capture_output=True, text=True
    )
    assert {tag for tag in tags.stdout.split() if tag != f"v{__version__}"} == set()
    number = __version__.removesuffix(".dev0")
    pending = ", not released yet" if number != __version__ else ""
    changes = (ROOT / "gputui/CHANGELOG.md").read_text(encoding="utf-8")
    assert f"\n## {number}{pending}\n" in changes
