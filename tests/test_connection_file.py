"""Which clusters run here: names are free when their heads are gone, and only then."""

import json
import multiprocessing
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from gputui.errors import HeadError, UsageError
from gputui.protocol.connection_file import (
    ConnectionFile,
    NameLock,
    check_name,
    running_clusters,
)

forked = multiprocessing.get_context("fork")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path / "gputui"


def look(number: int) -> None:
    for _ in range(number):
        running_clusters()


def test_a_free_name_is_free_while_others_look_which_clusters_run(folder: Path) -> None:
    running_clusters()
    looking = [forked.Process(target=look, args=(1000,)) for _ in range(2)]
    for each in looking:
        each.start()
    try:
        while any(each.is_alive() for each in looking):
            (folder / "lab.json").write_text("{}")  # as a head that was killed leaves it
            NameLock("lab", "id").release()
        for each in looking:
            each.join()
        assert [each.exitcode for each in looking] == [0, 0]
    finally:
        for each in looking:
            each.kill()
            each.join()


def published(name: str, cluster_id: str) -> NameLock:
    lock = NameLock(name, cluster_id)
    lock.publish(ConnectionFile(name, cluster_id, os.getpid(), 1.5, "/x.sock", "0.1.0"))
    return lock


def test_a_name_is_taken_as_long_as_its_head_lives() -> None:
    lock = published("lab", "0123456789abcdef")
    with pytest.raises(HeadError, match=r"'lab' runs already.*gputui\.connect\('lab'\), or"):
        NameLock("lab", "another")
    assert [each.name for each in running_clusters()] == ["lab"]
    lock.release()
    assert running_clusters() == ()


def test_a_name_in_use_is_numbered_where_that_is_asked_for() -> None:
    locks = [published("lab", "0"), NameLock("lab", "1", numbered=True)]
    assert [lock.name for lock in locks] == ["lab", "lab-2"]
    for lock in locks:
        lock.release()


def dies(folder: Path, says_more: bool) -> None:
    lock = NameLock("lab", "0123456789abcdef")
    socket.socket(socket.AF_UNIX).bind(str(folder / "0123456789abcdef.sock"))
    if says_more:
        lock.publish(ConnectionFile("lab", "0123456789abcdef", 1, 1.5, "/x.sock", "0.1.0"))
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("says_more", [True, False])
def test_a_head_that_was_killed_leaves_nothing_once_clusters_are_listed(
    folder: Path, says_more: bool
) -> None:
    head = forked.Process(target=dies, args=(folder, says_more))
    head.start()
    head.join()
    assert len([*folder.iterdir()]) == 2
    assert running_clusters() == ()
    assert [*folder.iterdir()] == []


def test_a_file_with_more_fields_and_one_with_fewer_are_read(folder: Path) -> None:
    lock = published("lab", "0123456789abcdef")
    path = folder / "lab.json"
    said = json.loads(path.read_text())
    for other in (said | {"new": [1]}, {k: v for k, v in said.items() if k != "hosts_source"}):
        path.write_text(json.dumps(other))
        assert [each.pid for each in running_clusters()] == [os.getpid()]
    lock.release()


def test_a_link_in_place_of_a_file_is_not_followed(folder: Path, tmp_path: Path) -> None:
    running_clusters()
    (tmp_path / "precious").write_text("kept")
    (folder / "lab.json").symlink_to(tmp_path / "precious")
    with pytest.raises(HeadError, match=r"lab\.json: .*symbolic link"):
        NameLock("lab", "id")
    assert (tmp_path / "precious").read_text() == "kept"


@pytest.mark.parametrize("name", ["-x", "--all", ".x", "a/b", "", "a\nb", "a" * 101])
def test_a_name_that_a_command_or_a_folder_would_misread_is_refused(name: str) -> None:
    with pytest.raises(UsageError):
        check_name(name)
