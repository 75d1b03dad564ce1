"""Names of clusters on other machines, told from those of this one."""

import asyncio
import os
import socket
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from gputui.cli import run_command
from gputui.cli.clusters import remote_head
from gputui.client import there
from gputui.client.head_connection import HeadConnection
from gputui.client.remote_head import RemoteHead, nobody
from gputui.errors import HeadError, UsageError
from gputui.protocol.codec import encode
from gputui.protocol.connection_file import ConnectionFile, NameLock
from gputui.protocol.frontend import Attached
from gputui.protocol.shared import Credentials

Words = tuple[str, ...]


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))


@pytest.mark.parametrize("name", ["me@login", "me@login:lab", "login:", "login:lab", "me@[::1]:x"])
def test_a_login_with_or_without_a_name_is_another_machine(name: str) -> None:
    assert remote_head(name) is not None


@pytest.mark.parametrize("name", ["lab", "", "gpu hosts", "a/b@c", "::"])
def test_any_other_word_is_a_cluster_here(name: str) -> None:
    assert RemoteHead.named(name, nobody) is None


def test_a_cluster_that_runs_here_is_meant_first() -> None:
    lock = NameLock("me@login", "id")
    lock.publish(ConnectionFile("me@login", "id", os.getpid(), 1.5, "/x.sock", "0.1.0"))
    assert remote_head("me@login") is None
    lock.release()


def test_this_machine_without_a_user_is_no_other_one() -> None:
    with pytest.raises(UsageError, match="name one machine to log in to"):
        remote_head("localhost:lab")


@pytest.mark.parametrize(
    ("there", "refused", "shown", "said"),
    [
        ({"python_version": "3.9"}, ("run", "python"), ("screen",), "lab runs on Python 3.9, and"),
        (
            {"packages": (("dask", "2026.1.0"), ("distributed", version("distributed")))},
            ("run",),
            ("screen", "command", "program"),
            f"lab has another Dask: dask 2026.1.0 there, {version('dask')} here\n"
            "  pip install dask==2026.1.0 here, or use the cluster's own: ",
        ),
    ],
    ids=["python", "dask"],
)
async def test_a_cluster_of_another_python_or_dask_is_shown_and_a_run_is_told_what_mends_it(
    tmp_path: Path, there: dict[str, Any], refused: Words, shown: Words, said: str
) -> None:
    place = ("lab", "id", 7, 1.5, Credentials("", "", "{}"))
    there["address"] = "tls://10.0.0.1:8786"

    async def head(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(encode(Attached(*place, python="/opt/py/bin/python", **there)))
        await reader.read()
        writer.close()

    async with await asyncio.start_unix_server(head, tmp_path / "head.sock"):
        for frontend in refused:
            with pytest.raises(HeadError) as caught:
                await HeadConnection.open(tmp_path / "head.sock", frontend=frontend)
            assert str(caught.value).startswith(said)
            assert "/opt/py/bin/python -m gputui" in str(caught.value)
        for frontend in shown:
            await (await HeadConnection.open(tmp_path / "head.sock", frontend=frontend)).close()


@pytest.fixture
def login_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SHELL", "/bin/sh")
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    return tmp_path


def program(path: Path) -> Path:
    path.parent.mkdir(parents=True)
    path.write_text("#!/bin/sh\nexec cat\n")
    path.chmod(0o755)
    return path


def test_gputui_elsewhere_is_first_the_one_of_the_login_shells_path(login_home: Path) -> None:
    own = program(login_home / "env" / "bin" / "gputui")
    (login_home / ".profile").write_text(f"echo welcome\nPATH={own.parent}:$PATH\n")
    assert there.places("/opt/here/gputui")[0] == str(own)


def test_gputui_elsewhere_may_be_at_this_path_or_in_the_users_own_folders(login_home: Path) -> None:
    first, *others = there.places("/opt/here/gputui")
    assert first == ""
    assert "/opt/here/gputui" in others
    assert f"{login_home}/.local/bin/gputui" in others
    assert f"{login_home}/.local/share/gputui/env/bin/gputui" in others


def test_where_gputui_was_looked_for_elsewhere_is_said(login_home: Path) -> None:
    given = str(login_home / "nowhere" / "gputui")
    assert there.up([], "", given, "") == {"looked": [given]}


def test_the_ports_of_a_cluster_elsewhere_are_checked_there(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        metrics = ["--metrics", str(taken.getsockname()[1])]
        assert run_command(["up", *metrics, "--on", "localhost"]) == 2
        assert "name one machine to log in to" in capsys.readouterr().err
        assert run_command(["up", *metrics]) == 2
        assert "Address already in use" in capsys.readouterr().err


def test_a_path_for_gputui_elsewhere_needs_a_machine(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["up", "--remote-gputui", "/opt/gputui"]) == 2
    assert "--remote-gputui: for --on USER@LOGIN" in capsys.readouterr().err
