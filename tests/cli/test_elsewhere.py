"""Names of clusters on other machines, told from those of this one."""

import os
from pathlib import Path

import pytest

from gputui.cli.elsewhere import remote_head
from gputui.client.remote_head import RemoteName
from gputui.errors import UsageError
from gputui.protocol.connection_file import ConnectionFile, NameLock


@pytest.mark.parametrize("name", ["me@login", "me@login:lab", "login:", "login:lab", "me@[::1]:x"])
def test_a_login_with_or_without_a_name_is_another_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert remote_head(name) is not None


@pytest.mark.parametrize("name", ["lab", "", "gpu hosts", "a/b@c", "::"])
def test_any_other_word_is_a_cluster_here(name: str) -> None:
    assert RemoteName.parse(name) is None


def test_a_cluster_that_runs_here_is_meant_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    lock = NameLock("me@login", "id")
    lock.publish(ConnectionFile("me@login", "id", os.getpid(), "/x.sock", 1.5, "0.1.0"))
    assert remote_head("me@login") is None
    lock.release()


def test_this_machine_without_a_user_is_no_other_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with pytest.raises(UsageError, match="name one machine to log in to"):
        remote_head("localhost:lab")
