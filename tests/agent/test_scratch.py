"""The folders of agents that were killed, or whose machine was, are removed by the next one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gputui.agent.agent_socket import OWNER, AgentSocket, own_scratch, sweep_scratch
from gputui.process.procfs import own_machine


@pytest.fixture
def left(tmp_path: Path) -> Path:
    """The folder of an agent that was killed, with what a worker spilled."""
    folder = tmp_path / "gputui-left"
    (folder / "localhost-gpu0").mkdir(parents=True)
    (folder / "localhost-gpu0" / "spilled").write_bytes(b"x" * 100)
    agent = (
        f"from gputui.agent.agent_socket import own_scratch, Path; own_scratch(Path('{folder}'))"
    )
    subprocess.run([sys.executable, "-c", agent], check=True)
    return folder


def test_what_was_left_is_removed_and_what_is_in_use_is_not(left: Path, tmp_path: Path) -> None:
    used = tmp_path / "gputui-used"
    used.mkdir()
    own_scratch(used)
    unnamed = tmp_path / "gputui-unnamed"
    unnamed.mkdir()
    sweep_scratch(tmp_path)
    assert sorted(tmp_path.iterdir()) == [unnamed, used]


@pytest.mark.parametrize("text", ["", "another machine"])
def test_what_is_not_known_to_be_of_this_machine_is_left_alone(
    left: Path, tmp_path: Path, text: str
) -> None:
    (left / OWNER).write_text(text)
    sweep_scratch(tmp_path)
    assert left.exists()


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
        each.note(descriptor)
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
    agent_socket.note(lock)
    agent_socket.listen().close()
    os.close(lock)
