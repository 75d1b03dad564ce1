"""The folders of agents that were killed, or whose machine was, are removed by the next one."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from gputui.agent import agent_socket
from gputui.agent.agent_socket import OWNER, AgentSocket, own_scratch, sweep_scratch
from gputui.process.procfs import own_machine


@pytest.fixture
def left(tmp_path: Path) -> Path:
    """The folder of an agent that has ended without a word, with what a worker spilled."""
    folder = tmp_path / "gputui-left"
    (folder / "localhost-gpu0").mkdir(parents=True)
    (folder / "localhost-gpu0" / "spilled").write_bytes(b"x" * 100)
    own_scratch(folder)
    ended = subprocess.Popen(["true"])
    ended.wait()
    change(folder, pid=ended.pid)
    return folder


def change(folder: Path, **changes: object) -> None:
    path = folder / OWNER
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_what_was_left_is_removed_and_what_is_in_use_is_not(left: Path, tmp_path: Path) -> None:
    used = tmp_path / "gputui-used"
    used.mkdir()
    own_scratch(used)
    unnamed = tmp_path / "gputui-unnamed"
    unnamed.mkdir()
    sweep_scratch(tmp_path)
    assert sorted(tmp_path.iterdir()) == [unnamed, used]


def test_a_pid_that_another_process_has_by_now_is_no_owner(left: Path, tmp_path: Path) -> None:
    change(left, pid=os.getpid(), ticks=1)
    sweep_scratch(tmp_path)
    assert not left.exists()


def test_what_was_left_before_the_machine_started_is_removed(left: Path, tmp_path: Path) -> None:
    change(left, boot="the last one", pids="pid:[1]", pid=os.getpid())
    sweep_scratch(tmp_path)
    assert not left.exists()


@pytest.mark.parametrize("where", [{"machine": "another"}, {"pids": "pid:[1]"}])
def test_what_another_machine_or_container_has_is_left_alone(
    left: Path, tmp_path: Path, where: dict[str, str]
) -> None:
    change(left, **where)
    sweep_scratch(tmp_path)
    assert left.exists()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"machine": 1}'])
def test_an_owner_that_cannot_be_read_is_left_alone(left: Path, tmp_path: Path, text: str) -> None:
    (left / OWNER).write_text(text)
    sweep_scratch(tmp_path)
    assert left.exists()


def test_an_owner_that_proc_hides_is_there(
    left: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change(left, pid=os.getppid())
    monkeypatch.setattr(agent_socket, "process_stat", lambda pid: None)
    sweep_scratch(tmp_path)
    assert left.exists()


def test_who_cannot_see_itself_leaves_no_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_socket, "process_stat", lambda pid: None)
    own_scratch(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_link_is_not_followed(left: Path, tmp_path: Path) -> None:
    away = tmp_path / "away"
    left.rename(away)
    left.symlink_to(away)
    sweep_scratch(tmp_path)
    assert (away / OWNER).exists()


def test_the_places_of_agents_that_were_killed_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    own, killed, elsewhere, lives = (AgentSocket.of("c", n) for n in "abcd")
    for each in (killed, elsewhere):
        left_behind(each)
    lock = elsewhere.path.with_suffix(".held")
    lock.write_text(lock.read_text().replace(own_machine(), "another machine"))
    held = [each.hold() for each in (own, lives)]
    for each, descriptor in zip((own, lives), held, strict=True):
        assert descriptor is not None
        each.note(descriptor, "id", "lab")
        each.listen().close()
    own.sweep_others()
    there = {path.name for path in own.path.parent.iterdir()}
    for descriptor in held:
        os.close(descriptor or 0)
    stay = {
        path
        for each in (own, elsewhere, lives)
        for path in (each.path.name, each.path.with_suffix(".held").name)
    }
    assert there == stay


def left_behind(agent_socket: AgentSocket) -> None:
    """Leave what an agent leaves that is killed."""
    lock = agent_socket.hold()
    assert lock is not None
    agent_socket.note(lock, "id", "lab")
    agent_socket.listen().close()
    os.close(lock)
