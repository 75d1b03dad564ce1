"""A machine that is logged in to and answers with anything: a failure in words, or a safe list."""

import asyncio
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import dask
import pytest

from gputui.cli import run_command, why
from gputui.client.remote_head import GREETING, RemoteHead, nobody
from gputui.errors import HeadError
from gputui.fleet.deploy import start_agent
from gputui.protocol.connection_file import ConnectionFile
from gputui.protocol.frontend import Attached
from gputui.protocol.shared import Credentials
from gputui.protocol.typed_codec import encode
from gputui.version import __version__
from tests.sshd import AsyncsshServer, SshHosts
from tests.test_borders import POISON, harmless

CLUSTER = {
    "name": POISON,
    "cluster_id": "id",
    "pid": 7,
    "socket": "/nowhere.sock",
    "started_at": 1.5,
    "version": POISON,
}
ROWS = [
    {"clusters": [{**CLUSTER, key: value}]}
    for key, value in [
        ("name", 3),
        ("pid", "7"),
        ("socket", "\ud800"),
        ("socket", "/a\0b"),
        ("started_at", 1e300),
        ("started_at", float("nan")),
        ("started_at", -1e18),
        ("address", ["x"]),
    ]
]
ANSWERS = [
    *map(
        json.dumps,
        (
            *ROWS,
            {},
            [],
            3,
            None,
            POISON,
            {"clusters": 3},
            {"clusters": {"a": 1}},
            {"clusters": [3, None, [], {}]},
            {"clusters": [CLUSTER]},
            {"socket": POISON, "port": 2**70},
            {"socket": "/x", "port": "22"},
            {"socket": ["x"], "port": 22},
            {"stopped": POISON},
            {"looked": 3},
        ),
    ),
    "[" * 100_000,
    '{"clusters": ' + "[" * 100_000,
    "9" * 10_000,
    "\x1b[2J\u202e{",
]
LIAR = "#!{python} -BS\nimport os\nos.write(1, {line!r})\n"
COMMANDS = (
    ["ls", "liar:"],
    ["down", "liar:lab"],
    ["--attach", "liar:", "--run", "smoke"],
    ["up", "localhost", "--on", "liar"],
)


@pytest.fixture
def lie(
    start_asyncssh: Callable[..., AsyncsshServer],
    ssh_folder: SshHosts,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Callable[[str], None]]:
    """Set what the machine `liar` answers to whatever it is asked."""
    start_asyncssh("liar")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    script = tmp_path / "python"
    python = sys.executable
    monkeypatch.setattr(sys, "executable", str(script))  # the first that is looked for there

    def lie(answer: str) -> None:
        line = f"{GREETING.decode()} {answer}\n".encode("utf-8", "surrogateescape")
        script.write_text(LIAR.format(python=python, line=line))
        script.chmod(0o700)

    with dask.config.set({"gputui.ssh.config": str(ssh_folder.config)}):
        yield lie


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS, ids=lambda words: words[0])
def test_whatever_a_login_machine_answers_is_an_error_in_words_or_a_safe_list(
    lie: Callable[[str], None], capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    for answer in ANSWERS:
        lie(answer)
        assert run_command(command) in ((0, 2, 3) if command[0] == "ls" else (2, 3)), answer[:200]
        printed = capsys.readouterr()
        assert harmless(printed.out + printed.err), answer[:200]
        assert "refuses the connection" not in printed.err
        assert "Traceback" not in printed.err and len(printed.err) < 4_000, answer[:200]


@pytest.mark.parametrize("command", [*COMMANDS, ["why", "liar:lab"]], ids=lambda words: words[0])
@pytest.mark.usefixtures("runtime")
def test_a_login_shell_that_waits_for_ever_is_named(
    start_asyncssh: Callable[..., AsyncsshServer],
    ssh_folder: SshHosts,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: list[str],
) -> None:
    monkeypatch.setattr(start_agent, "PATIENT", 0.1)
    monkeypatch.setattr(why, "REMOTE_S", 0.5)
    start_asyncssh("liar", shell=("/bin/sh", "-c", "cat >/dev/null"))
    with dask.config.set({"gputui.ssh.config": str(ssh_folder.config)}):
        assert run_command(command) == 3
    said = capsys.readouterr().err
    assert "its login shell did not start Python within 1 s" in said
    assert "`ssh liar true`" in said


@pytest.mark.usefixtures("runtime")
async def test_a_way_that_ends_before_it_is_met_is_an_error_that_leaves_no_frontend(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = asyncio.Event()
    attached = Attached("lab", "id", 1, 0.0, Credentials("", "", "{}"), address="tls://h:1")

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(encode(attached))
        await reader.read()
        ended.set()
        writer.close()

    async def reach() -> ConnectionFile:
        return ConnectionFile("lab", "id", 1, 0.0, str(tmp_path / "s"), __version__)

    async def silent() -> NoReturn:
        raise TimeoutError

    server = await asyncio.start_unix_server(serve, tmp_path / "s")
    head = RemoteHead("me@login", "lab", nobody)
    monkeypatch.setattr(head, "reach", reach)
    monkeypatch.setattr(head, "_connected", silent)
    with pytest.raises(HeadError, match="login: no answer"):
        await head.open(frontend="command")
    await asyncio.wait_for(ended.wait(), 10)
    server.close()


@pytest.mark.parametrize("address", ["x", "tls://[", "tls://a:99999999", "tls://:1", POISON])
async def test_an_address_that_is_none_is_an_error_in_words(address: str) -> None:
    head = RemoteHead("me@login", "lab", nobody)
    with pytest.raises(HeadError, match="its head names no address") as refused:
        await head.forwarded(address)
    assert harmless(str(refused.value))
