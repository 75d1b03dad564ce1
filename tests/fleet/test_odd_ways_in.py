"""Hosts that are slow, full, old, or whose login shell does what it likes."""

import random
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from gputui.model.hosts import Host
from gputui.model.snapshot import HostState as S
from tests.fleet.conftest import Reach, Reaching, own_sshd
from tests.sshd import AsyncsshServer, SshHosts

Start = Callable[..., AsyncsshServer]
HOST = Host("ssh1", gpus=(), python=sys.executable)


def login_shell(folder: Path, text: str) -> tuple[str, ...]:
    """Return a login shell that does something before it runs a command."""
    path = folder / "login-shell"
    path.write_text(f'#!/bin/bash\n{text}\nexec /bin/bash "$@"\n')
    path.chmod(0o755)
    return (str(path),)


@pytest.mark.parametrize(
    "text",
    [
        "echo 'Welcome!'; printf 'no newline: '",
        "read first; read second",
        "cd /; export PYTHONSAFEPATH=",
        "echo 'gputui-loader-1 {}'; echo gputui-agent-stream-1; echo gputui-begin",
        "exec 2>&1; echo on stderr >&2",
    ],
    ids=["prints", "reads stdin", "changes folder", "prints the markers", "joins stderr"],
)
async def test_a_login_shell_may_do_what_it_likes(reach: Reach, text: str) -> None:
    host = await reach(python=sys.executable, shell=login_shell(reach.folder, text))
    assert (host.state, host.status.reason) == (S.READY, "")


async def test_a_login_shell_that_waits_for_ever_is_named(
    reaching: Reaching, reach: Reach, monkeypatch: pytest.MonkeyPatch
) -> None:
    reaching.hurry(monkeypatch, "its login shell did not start Python", 1)
    host = await reach(shell=login_shell(reach.folder, "cat >/dev/null; exit"))
    assert "its login shell did not start Python within" in host.status.reason
    assert "`ssh ssh1 true`" in host.status.hint


def interpreter(version: str) -> str | None:
    """Return a Python of this version; behind a shim of pyenv's, which asks $HOME, the real one."""
    path = Path(shutil.which(f"python{version}") or "/none/none")
    if path.parent.name == "shims":
        found = sorted(path.parents[1].glob(f"versions/{version}*/bin/python"))
        path = found[0] if found else path
    try:
        done = subprocess.run([path, "-c", "import sys; print(sys.executable)"], env={})
    except OSError:
        return None
    return None if done.returncode else str(path)


async def test_an_old_python_is_named_with_its_version(
    reaching: Reaching, asyncssh_hosts: SshHosts
) -> None:
    python = interpreter("3.6") or pytest.skip("no Python 3.6 here")
    host = await reaching.over(asyncssh_hosts, python=python)
    assert "Python 3.6" in host.status.reason
    assert "travel between minor versions" in host.status.reason


async def test_what_setup_exports_is_taken_over(reach: Reach) -> None:
    cache = reach.folder / "its cache"
    setup = f'export XDG_CACHE_HOME="{cache}" && echo module loaded'
    host = await reach(python=sys.executable, setup=setup, environ={"SHELL": "/bin/bash"})
    assert host.state is S.READY
    assert list((cache / "gputui").glob("agent-*.pyz"))


@pytest.mark.parametrize("shell", ["bash", "zsh", "tcsh", "fish", "ksh", "sh"])
async def test_a_setup_that_fails_is_shown_with_what_it_said(reach: Reach, shell: str) -> None:
    path = shutil.which(shell) or pytest.skip(f"no {shell} here")
    setup = "sh -c 'echo no such module: cuda; exit 3'"
    host = await reach(setup=setup, shell=(path,), environ={"SHELL": path})
    failed = r"setup= or Python failed there( \(exit status [13]\))?: no such module: cuda"
    assert re.fullmatch(failed, host.status.reason)
    assert setup in host.status.hint


async def test_a_server_that_opens_no_session_is_named(
    reaching: Reaching, ssh_folder: SshHosts
) -> None:
    with own_sshd(ssh_folder, "MaxSessions 0\n", "full"):
        host = await reaching.over(ssh_folder, "full")
        assert "opened no session" in host.status.reason
        assert "MaxSessions" in host.status.hint
        await reaching.close()


async def test_a_home_that_is_not_ascii_under_the_posix_locale(reach: Reach) -> None:
    home = reach.folder / "hömé-家"
    home.mkdir()
    environ = {"HOME": str(home), "XDG_CACHE_HOME": f"{home}/cache", "LC_ALL": "POSIX"}
    environ |= {"PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    (home / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (home / "python").chmod(0o755)
    host = await reach(python="~/python", environ=environ)
    assert (host.state, host.status.reason) == (S.READY, "")


BYTES_PER_S = 50_000

SLOW = f"""
import asyncio, sys
BYTES_PER_S = {BYTES_PER_S}

async def carry(reader, write, delay_s, bytes_per_s):
    queue = asyncio.Queue()
    async def late():
        while True:
            due, data = await queue.get()
            await asyncio.sleep(max(0, due - asyncio.get_running_loop().time()))
            write(data)
    task = asyncio.create_task(late())
    while data := await reader.read(1024):
        queue.put_nowait((asyncio.get_running_loop().time() + delay_s, data))
        await asyncio.sleep(len(data) / bytes_per_s)

async def main(host, port, delay_s):
    loop = asyncio.get_running_loop()
    there = await asyncio.open_connection(host, port)
    here = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(here), sys.stdin)
    out = open(1, "wb", 0)
    up = carry(here, there[1].write, delay_s, BYTES_PER_S)
    down = carry(there[0], out.write, delay_s, BYTES_PER_S)
    await asyncio.wait(map(asyncio.ensure_future, (up, down)), return_when="FIRST_COMPLETED")

asyncio.run(main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])))
"""
"""A ProxyCommand with 400 kbit/s, and round trips of twice its last argument."""


def through_slow(hosts: SshHosts, delay_s: float) -> str:
    """Return an SSH configuration that reaches the hosts through it."""
    script = hosts.folder / "slow.py"
    script.write_text(SLOW)
    command = f"{sys.executable} {script} %h %p {delay_s}"
    return f"{hosts.config.read_text()}Host *\n  ProxyCommand {command}\n"


@pytest.mark.long
async def test_round_trips_of_two_seconds_keep_no_host_away(
    reaching: Reaching, start_asyncssh: Start, ssh_folder: SshHosts
) -> None:
    start_asyncssh("ssh1")
    ssh_folder.config.write_text(through_slow(ssh_folder, 1.0))
    reaching.configure(ssh_config=str(ssh_folder.config))
    host = await reaching.end(reaching.begin(HOST), bound_s=110)
    assert (host.state, host.status.reason) == (S.READY, "")


@pytest.mark.slow
async def test_a_slow_link_brings_the_agent_all_the_same(
    reaching: Reaching, start_asyncssh: Start, ssh_folder: SshHosts
) -> None:
    start_asyncssh("ssh1")
    ssh_folder.config.write_text(through_slow(ssh_folder, 0.2))
    padding = random.Random(1).randbytes(250_000)
    # A zip archive may have anything before it.
    reaching.shared_pack = replace(reaching.shared_pack, data=padding + reaching.shared_pack.data)
    reaching.configure(ssh_config=str(ssh_folder.config), stage_timeout_s=4.0)
    sent_s = len(reaching.shared_pack.data) / BYTES_PER_S
    assert sent_s > reaching.settings.stage_timeout_s
    host = await reaching.end(reaching.begin(HOST), bound_s=60)
    assert (host.state, host.status.reason) == (S.READY, "")


async def test_a_host_whose_login_shell_takes_its_time_says_that_it_is_waited_for(
    reaching: Reaching, start_asyncssh: Start, ssh_folder: SshHosts
) -> None:
    go = ssh_folder.folder / "go"
    waits = f"until [ -e {go} ]; do sleep 0.1; done"
    start_asyncssh("ssh1", shell=login_shell(ssh_folder.folder, waits))
    reaching.configure(ssh_config=str(ssh_folder.config))
    host = reaching.begin(HOST)
    listener = reaching.listeners["ssh1"]
    await listener.until(lambda: host.status.reason == "waiting for its login shell")
    go.touch()
    assert ((await reaching.end(host)).state, host.status.reason) == (S.READY, "")
