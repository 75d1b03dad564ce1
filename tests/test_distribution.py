"""What is distributed: all of the source, the same bytes each time, and links that hold on PyPI."""

import subprocess
import tarfile
import zipfile
from hashlib import sha256
from pathlib import Path

import pytest

from gputui import __version__

sdist = pytest.importorskip("hatchling.builders.sdist")
wheel = pytest.importorskip("hatchling.builders.wheel")

ROOT = Path(__file__).parent.parent
INFO = f"gputui-{__version__}.dist-info"


def built(builder: type, folder: Path) -> Path:
    """Build a distribution of this checkout."""
    (path,) = builder(str(ROOT)).build(directory=str(folder))
    return Path(path)


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


def test_the_wheel_holds_the_package_with_its_help_and_no_tests(tmp_path: Path) -> None:
    path = built(wheel.WheelBuilder, tmp_path)
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        metadata = archive.read(f"{INFO}/METADATA").decode()
    assert {"gputui/help/hosts.md", "gputui/py.typed"} <= {*names}
    assert {name.split("/")[0] for name in names} == {"gputui", INFO}
    assert "Development Status" in metadata and "Author" in metadata
