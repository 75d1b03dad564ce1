"""What is looked at on a machine where a cluster is looked for over SSH."""

import fcntl
import json
import os
from pathlib import Path

import pytest

from gputui.client import there


def running(folder: Path, name: str) -> int:
    """Write a connection file and hold its lock."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    path.write_text(json.dumps({"name": name, "socket": f"{folder}/head.sock"}))
    held = os.open(path, os.O_RDWR)
    fcntl.flock(held, fcntl.LOCK_EX)
    return held


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path / f"gputui-{os.getuid()}"


def names() -> list[str]:
    return [each["name"] for each in there.find()]


def test_a_cluster_in_a_folder_of_this_user_is_found(tmp_path: Path, temporary: Path) -> None:
    held = [running(temporary, "spare"), running(tmp_path / "run/gputui", "lab")]
    assert names()[:2] == ["lab", "spare"]
    for each in held:
        os.close(each)


def test_a_cluster_that_a_link_leads_to_is_not_found(tmp_path: Path, temporary: Path) -> None:
    held = running(tmp_path / "elsewhere", "trap")
    temporary.mkdir(mode=0o700)
    (temporary / "trap.json").symlink_to(tmp_path / "elsewhere/trap.json")
    assert "trap" not in names()
    (temporary / "trap.json").unlink()
    temporary.rmdir()
    temporary.symlink_to(tmp_path / "elsewhere")
    assert "trap" not in names()
    os.close(held)


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to give a folder away")
def test_a_cluster_in_another_users_folder_is_not_found(temporary: Path) -> None:
    held = running(temporary, "trap")
    os.chown(temporary, 12345, -1)
    assert "trap" not in names()
    os.close(held)
