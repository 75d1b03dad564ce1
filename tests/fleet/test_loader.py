"""Where the loader keeps the packed agent, and what it does not trust."""

import os
import sys
import time
from pathlib import Path

import pytest

from gputui.fleet.deploy import loader

PACK = b"a pack"
HASH = loader.digest(PACK)


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The two folders that it may use."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return loader.folders()


def test_a_pack_is_found_again_and_another_is_not(folders: list[Path]) -> None:
    path = loader.store(HASH, PACK)
    assert (loader.find(HASH), path) == (path, str(folders[0] / f"agent-{HASH}.pyz"))
    Path(path).write_bytes(b"something else")
    assert loader.find(HASH) == ""


def test_a_link_in_place_of_the_folder_is_not_followed(folders: list[Path], tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    (elsewhere / f"agent-{HASH}.pyz").write_bytes(PACK)
    folders[0].parent.mkdir()
    folders[0].symlink_to(elsewhere)
    assert loader.find(HASH) == ""
    assert loader.store(HASH, PACK) == str(folders[1] / f"agent-{HASH}.pyz")


def test_the_folder_of_another_user_is_not_used(folders: list[Path]) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a folder away")
    first, second, *_ = folders
    loader.store(HASH, PACK)
    os.chown(first, 65534, 65534)
    assert loader.find(HASH) == ""
    assert loader.store(HASH, PACK).startswith(str(second))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_pack_that_another_user_may_change_is_not_used(folders: list[Path]) -> None:
    path = loader.store(HASH, PACK)
    os.chown(path, 65534, 65534)
    assert loader.find(HASH) == ""


def test_a_folder_that_others_may_enter_is_closed_to_them(folders: list[Path]) -> None:
    loader.store(HASH, PACK)
    folders[0].chmod(0o777)
    assert loader.find(HASH)
    assert folders[0].stat().st_mode & 0o777 == 0o700


def test_the_drafts_of_loaders_that_were_killed_are_swept(folders: list[Path]) -> None:
    loader.store(HASH, PACK)
    old, young = folders[0] / ".agent-old", folders[0] / ".agent-young"
    for draft in (old, young):
        draft.touch()
    long_ago = time.time() - 2 * loader.DRAFT_S
    os.utime(old, (long_ago, long_ago))
    other = b"another pack"
    loader.store(loader.digest(other), other)
    assert (old.exists(), young.exists()) == (False, True)


def test_packs_that_no_agent_runs_from_any_more_are_swept(folders: list[Path]) -> None:
    packs = [b"in use", b"forgotten"]
    for path in [loader.store(loader.digest(pack), pack) for pack in packs]:
        os.utime(path, (0, 0))
    assert loader.find(loader.digest(b"in use"))
    loader.store(HASH, PACK)
    assert [bool(loader.find(loader.digest(pack))) for pack in packs] == [True, False]


def test_the_python_with_the_wanted_versions_is_chosen(tmp_path: Path) -> None:
    for there in ("7.1", "6.9"):
        about = tmp_path / there / f"dask-{there}.dist-info"
        about.mkdir(parents=True)
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: dask\nVersion: {there}\n")
        (tmp_path / there / "dask").mkdir()
        (tmp_path / there / "dask" / "__init__.py").touch()
    pythons = {"fitting": ("7.1",), "older": ("6.9",), "shadowed": ("6.9", "7.1")}
    for name, there in pythons.items():
        path = os.pathsep.join(str(tmp_path / each) for each in there)
        (tmp_path / name).write_text(f'#!/bin/sh\nPYTHONPATH={path} exec {sys.executable} "$@"\n')
        (tmp_path / name).chmod(0o755)
    fitting, older, shadowed = (str(tmp_path / name) for name in pythons)
    minor = f"{sys.version_info.major}.{sys.version_info.minor}."
    assert loader.choose(minor, ["dask==7.1"], [older, shadowed, fitting])[0] == fitting
    assert loader.choose(minor, ["dask==8.0"], [older])[0] == sys.executable
    assert loader.choose(minor, ["nothing-of-this-name==1"], [older])[0] == sys.executable
