"""Reaching hosts over SSH: what works, and how each failure reads."""

import asyncio
import getpass
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import asyncssh
import psutil
import pytest

from gputui.errors import HostError
from gputui.fleet.ssh import connection as ssh_connection
from gputui.fleet.ssh.connection import ControlMaster
from gputui.fleet.ssh.connector import Connector
from gputui.fleet.ssh.routes import HANDSHAKES_AT_ONCE
from gputui.fleet.stages import Stages
from gputui.model.hosts import Host
from gputui.model.snapshot import HostState as S
from tests.fleet.conftest import Reach, Reaching, nobody, own_sshd
from tests.sshd import AsyncsshServer, SshHosts, free_port

Start = Callable[..., AsyncsshServer]
SHIM = b"#!/bin/sh\necho 'pyenv: python3.9: command not found' >&2\nexit 127\n"


async def test_hosts_of_openssh_become_ready_all_at_once(
    reaching: Reaching, openssh_hosts: SshHosts
) -> None:
    hosts = await reaching.all_over(openssh_hosts, *(host.name for host in openssh_hosts.hosts))
    assert [host.status.reason for host in hosts] == [""] * 4
    assert [host.far_address for host in hosts] == [host.address for host in openssh_hosts.hosts]
    assert reaching.listeners["ssh1"].states == [
        S.RESOLVING,
        S.CONNECTING,
        S.AUTHENTICATING,
        S.PROBING,
        S.CHECKING,
        S.READY,
    ]


async def test_the_pack_is_sent_once_and_only_this_user_may_read_it(
    reaching: Reaching, reach: Reach, ssh_folder: SshHosts
) -> None:
    host = await reach()
    (path,) = (reach.folder / "cache" / "gputui").iterdir()
    assert path.name == f"agent-{reaching.shared_pack.hash}.pyz"
    assert path.stat().st_mode & 0o077 == 0
    written = path.stat().st_ino
    await host.stop()
    await reaching.over(ssh_folder)
    assert path.stat().st_ino == written


@pytest.mark.parametrize("shell", ["sh", "bash", "tcsh", "zsh", "fish", "ksh"])
async def test_any_login_shell_will_do(reach: Reach, shell: str) -> None:
    path = shutil.which(shell) or pytest.skip(f"no {shell} here")
    python = f"~/{os.path.relpath(sys.executable, Path.home())}"
    host = await reach(python=python, shell=(path,))
    assert (host.state, host.status.reason) == (S.READY, "")


async def test_a_host_that_refuses_the_key_does_not_stop_the_others(
    reaching: Reaching, start_asyncssh: Start, ssh_folder: SshHosts
) -> None:
    start_asyncssh("good")
    start_asyncssh("bad", lets_in=False)
    good, bad = await reaching.all_over(ssh_folder, "good", "bad")
    assert (good.state, bad.state) == (S.READY, S.FAILED)
    assert bad.status.failed_stage == "authenticating"
    assert "refused the login of" in bad.status.reason
    assert "ssh-copy-id" in bad.status.hint


async def test_a_password_is_asked_for_when_nothing_else_works(
    reaching: Reaching, reach: Reach
) -> None:
    passwords = {getpass.getuser(): "sesame"}
    host = await reach(answers=["wrong", "sesame"], lets_in=False, passwords=passwords)
    assert host.state is S.READY
    questions = reaching.listeners["ssh1"].questions
    assert [(question.kind, question.secret) for question in questions] == [("password", True)] * 2
    assert questions[1].text == f"Wrong. {questions[0].text}"


async def test_an_encrypted_key_is_opened_with_its_passphrase_asked_for_once(
    reaching: Reaching, asyncssh_hosts: SshHosts
) -> None:
    asyncssh_hosts.encrypt_client_key("open")
    hosts = await reaching.all_over(asyncssh_hosts, "ssh1", "ssh2", answers=["open"])
    assert [host.status.reason for host in hosts] == ["", ""]
    asked = [listener.questions for listener in reaching.listeners.values()]
    assert sorted(map(len, asked)) == [0, 1]


async def test_an_unknown_host_key_is_refused_with_fingerprint_and_command(
    reaching: Reaching, asyncssh_hosts: SshHosts
) -> None:
    asyncssh_hosts.known_hosts.write_text("")
    host = await reaching.over(asyncssh_hosts)
    fingerprint = asyncssh.read_public_key(f"{asyncssh_hosts.host_key}.pub").get_fingerprint()
    assert fingerprint in host.status.reason
    assert f"-F {asyncssh_hosts.config} ssh1 true" in host.status.hint
    assert asyncssh_hosts.known_hosts.read_text() == ""


async def test_an_unknown_host_key_that_a_person_accepts_is_remembered(
    reaching: Reaching, asyncssh_hosts: SshHosts
) -> None:
    known = asyncssh_hosts.known_hosts.read_text()
    asyncssh_hosts.known_hosts.write_text("# mine, with no newline")
    host = await reaching.over(asyncssh_hosts, answers=["yes"])
    assert host.state is S.READY
    first = " ".join(known.splitlines()[0].split()[:3])
    assert asyncssh_hosts.known_hosts.read_text() == f"# mine, with no newline\n{first}\n"


async def test_a_changed_host_key_is_refused_whoever_is_there(
    reaching: Reaching, asyncssh_hosts: SshHosts
) -> None:
    other = asyncssh.generate_private_key("ssh-ed25519").export_public_key().decode()
    where = asyncssh_hosts.known_hosts.read_text().split()[0]
    asyncssh_hosts.known_hosts.write_text(f"{where} {other}")
    host = await reaching.over(asyncssh_hosts, answers=["yes"])
    assert host.state is S.FAILED
    assert "has changed" in host.status.reason
    assert "ssh-keygen -R" in host.status.hint


@pytest.mark.slow
async def test_a_server_that_waits_for_no_person_is_connected_to_again(
    reaching: Reaching, ssh_folder: SshHosts
) -> None:
    with own_sshd(ssh_folder, "LoginGraceTime 4\n", "ssh1"):
        ssh_folder.known_hosts.write_text("")
        reaching.configure(ssh_config=str(ssh_folder.config))
        host = reaching.begin(Host("ssh1", gpus=()))
        sshd = psutil.Process(ssh_folder.processes[-1].pid)
        questions = []

        async def ask_slowly(host: object, question: object) -> str:
            questions.append(question)
            while sshd.children():
                await asyncio.sleep(0.05)
            return "yes"

        reaching.listeners["ssh1"].ask = ask_slowly
        assert (await reaching.end(host)).status.reason == ""
        assert len(questions) == 1
        await reaching.close()


async def test_a_host_is_reached_through_a_connection_that_the_users_ssh_holds(
    reaching: Reaching, openssh_hosts: SshHosts, tmp_path: Path
) -> None:
    first, second = openssh_hosts.hosts[:2]
    master = ["ssh", "-F", openssh_hosts.config, "-S", tmp_path / "master"]
    subprocess.run([*master, "-f", "-N", "-M", "ssh1"], check=True, stderr=subprocess.DEVNULL)
    try:
        config = tmp_path / "config"
        section = f"Host ssh1\n  HostName nowhere.invalid\n  ControlPath {tmp_path}/master\n"
        config.write_text(section)
        reaching.configure(ssh_config=str(config))
        host = await reaching.end(reaching.begin(Host("ssh1", gpus=())))
        assert (host.status.reason, host.far_address) == ("", first.address)
        reached = ControlMaster(f"{tmp_path}/master", ("-F", str(config), "ssh1"))
        port = await reached.forward_port(second.address, second.port)
        with socket.create_connection(("127.0.0.1", port), 5) as connection:
            assert connection.recv(4) == b"SSH-"
        await reached.forward_socket(f"{tmp_path}/here", f"{tmp_path}/there")
        await reached.close()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), 5)
        await reaching.close()
    finally:
        subprocess.run([*master, "-O", "exit", "ssh1"], stderr=subprocess.DEVNULL)


async def test_a_host_that_connects_to_ports_here_without_end_is_refused_more_than_so_many(
    openssh_hosts: SshHosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ssh_connection, "MOST_LED", 8)
    held: list[asyncio.StreamWriter] = []

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        held.append(writer)
        writer.write(b".")

    async def answer(port: int) -> tuple[bytes, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        return await reader.read(1), writer

    connections = Connector(str(openssh_hosts.config))
    stages = Stages("ssh1", 10, ask=nobody)
    connection = await connections.connect(Host("ssh1"), stages, "true")
    async with await asyncio.start_server(hold, "127.0.0.1") as server:
        port = await connection.forward_back(server.sockets[0].getsockname()[1])
        answers = await asyncio.gather(*(answer(port) for _ in range(20)))
        assert len(held) == 8 == [said for said, _ in answers].count(b".")
        for writer in (*held, *(writer for _, writer in answers)):
            writer.close()
        async with asyncio.timeout(10):
            while (again := await answer(port))[0] != b".":  # once those before are gone
                again[1].close()
        again[1].close()
        held[-1].close()
    await connection.close()
    await connections.close()


async def test_a_name_that_does_not_resolve(reaching: Reaching) -> None:
    host = await reaching.end(reaching.begin(Host("no-such-host.invalid", gpus=())))
    assert host.status.failed_stage == "resolving"
    assert "no-such-host.invalid does not resolve" in host.status.reason


async def test_a_port_that_refuses(reaching: Reaching) -> None:
    host = await reaching.end(reaching.begin(Host("127.0.0.1", gpus=(), port=free_port())))
    assert host.status.failed_stage == "connecting"
    assert "refuses the connection" in host.status.reason
    assert "host:port" in host.status.hint


async def test_a_host_that_accepts_and_says_nothing_is_refused_in_its_bound(
    reaching: Reaching, monkeypatch: pytest.MonkeyPatch
) -> None:
    reaching.hurry(monkeypatch, "said nothing as an SSH server", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        host = await reaching.end(reaching.begin(Host("127.0.0.1", gpus=(), port=port)))
    assert host.status.failed_stage == "authenticating"
    assert "said nothing as an SSH server" in host.status.reason


async def test_what_answers_is_not_ssh(reaching: Reaching) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 50)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        host = await reaching.end(reaching.begin(Host("127.0.0.1", gpus=(), port=port)))
    assert host.status.failed_stage == "authenticating"
    assert re.search("SSH server|before the login", host.status.reason)


async def test_no_such_python_on_a_host(reaching: Reaching, asyncssh_hosts: SshHosts) -> None:
    wanted = '/opt/it\'s "$HOME" `here`; !x/python'
    host = await reaching.over(asyncssh_hosts, python=wanted)
    assert host.status.reason == f"no such Python there: {wanted}"
    assert "bootstrap" in host.status.hint


@pytest.mark.parametrize(
    ("program", "mode", "says"),
    [
        (None, 0o755, "Permission denied"),
        (SHIM, 0o644, "Permission denied"),
        (SHIM, 0o755, "exit status 127): pyenv: python3.9: command not found"),
        (b"\x7fELF" + bytes(60), 0o755, "Exec format error"),
    ],
    ids=["a folder", "a text", "a shim", "a program of another machine"],
)
async def test_a_python_that_cannot_start_is_refused_in_its_own_words(
    reaching: Reaching,
    asyncssh_hosts: SshHosts,
    tmp_path: Path,
    program: bytes | None,
    mode: int,
    says: str,
) -> None:
    python = tmp_path / "python"
    python.mkdir() if program is None else python.write_bytes(program)
    python.chmod(mode)
    host = await reaching.over(asyncssh_hosts, python=str(python))
    assert says in host.status.reason
    assert "correct python=" in host.status.hint


async def test_another_python_is_refused_with_both_versions(
    reaching: Reaching, asyncssh_hosts: SshHosts
) -> None:
    versions = reaching.settings.versions
    changed = type(versions)("3.5", versions.dask, versions.distributed)
    reaching.configure(versions=changed)
    host = await reaching.over(asyncssh_hosts)
    assert re.search(r"Python 3\.\d+\.\d+ \(.*\), but 3\.5 here", host.status.reason)


async def test_an_sshd_that_drops_connections_past_its_limit_is_tried_again(
    reaching: Reaching, ssh_folder: SshHosts
) -> None:
    names = [f"many{number}" for number in range(1, 9)]
    with own_sshd(ssh_folder, "MaxStartups 2:100:2\n", *names):
        hosts = await reaching.all_over(ssh_folder, *names)
        assert [host.status.reason for host in hosts] == [""] * len(names)
        await reaching.close()


async def test_an_encrypted_key_that_nobody_opens_is_a_refused_login(
    reaching: Reaching, asyncssh_hosts: SshHosts
) -> None:
    asyncssh_hosts.encrypt_client_key("open")
    host = await reaching.over(asyncssh_hosts)
    assert host.status.failed_stage == "authenticating"
    assert "ssh-a" in host.status.hint


async def test_hosts_behind_a_jump_host_share_one_connection_to_it(
    reaching: Reaching, start_asyncssh: Start, ssh_folder: SshHosts
) -> None:
    jump = start_asyncssh("jump")
    servers = [start_asyncssh(name) for name in ("inner1", "inner2", "inner3")]
    config = ssh_folder.config.read_text()
    ssh_folder.config.write_text("Host inner*\n  ProxyJump jump\n" + config)
    hosts = await reaching.all_over(ssh_folder, "inner1", "inner2", "inner3")
    assert [host.status.reason for host in hosts] == [""] * 3
    assert (jump.logins, [server.logins for server in servers]) == (1, [1, 1, 1])


async def test_a_failure_behind_others_is_of_the_stage_that_failed(
    reaching: Reaching, start_asyncssh: Start, ssh_folder: SshHosts
) -> None:
    start_asyncssh("jump")
    start_asyncssh("inner1")
    sections, port = ssh_folder.config.read_text(), free_port()
    ssh_folder.config.write_text(
        f"Host jump stranger\n  NoHostAuthenticationForLocalhost yes\n"
        f"Host inner1\n  ProxyJump nobody@stranger\n  HostName 127.0.0.1\n"
        f"Host stranger\n  IdentityFile /none\n  HostName 127.0.0.1\n"
        f"  Port {ssh_folder.hosts[0].port}\n"
        f"Host down\n  HostName 127.0.0.1\n  Port {port}\n  ProxyJump jump\n"
        f"Host piped\n  ProxyCommand /bin/false\n{sections}"
    )
    reaching.configure(ssh_config=str(ssh_folder.config))
    names = ("inner1", "down", "piped")  # a command may have tried a login
    hosts = [await reaching.end(reaching.begin(Host(name, gpus=()))) for name in names]
    stages = [host.status.failed_stage for host in hosts]
    assert stages == ["authenticating", "connecting", "authenticating"], [
        h.status.reason for h in hosts
    ]


async def test_a_greeting_is_no_reason_for_an_agents_end(
    reaching: Reaching, start_asyncssh: Start, ssh_folder: SshHosts
) -> None:
    start_asyncssh("ssh1")
    reaching.configure(ssh_config=str(ssh_folder.config))
    host = Host("ssh1", gpus=(), setup="echo Welcome")
    ended = await reaching.end(reaching.begin(host, die=3, scheduler=False))
    assert ended.status.stderr_tail == ("Welcome",)
    assert ended.status.reason == "the connection to its agent was cut before it was ready"


async def test_a_cut_connection_is_made_again(
    reaching: Reaching, start_asyncssh: Start, ssh_folder: SshHosts
) -> None:
    server = start_asyncssh("ssh1")
    host = await reaching.over(ssh_folder)
    listener = reaching.listeners["ssh1"]
    server.drop_connections()
    await listener.until(lambda: S.RECONNECTING in listener.states)
    assert (await reaching.end(host)).state is S.READY


async def test_a_pack_that_was_tampered_with_is_sent_anew(reaching: Reaching, reach: Reach) -> None:
    path = reach.folder / "cache" / "gputui" / f"agent-{reaching.shared_pack.hash}.pyz"
    path.parent.mkdir(parents=True)
    path.write_text("print('tampered')")
    assert (await reach()).state is S.READY
    assert path.read_bytes() == reaching.shared_pack.data


async def test_hosts_whose_keys_cannot_be_looked_up_keep_no_turn_of_a_handshake(
    asyncssh_hosts: SshHosts, tmp_path: Path
) -> None:
    good = asyncssh_hosts.hosts[0].name
    section = asyncssh_hosts.section(asyncssh_hosts.hosts[0])
    config = tmp_path / "config"
    config.write_text(
        "Host bad\n  KnownHostsCommand /bin/false\n"
        + section.replace(f"Host {good}", f"Host bad {good}")
    )
    connector = Connector(str(config))

    async def connect(name: str) -> None:
        connection = await connector.connect(Host(name), Stages(name, 10.0, ask=nobody), "true")
        await connection.close()

    bad = [connect("bad") for _ in range(HANDSHAKES_AT_ONCE)]
    failures = await asyncio.gather(*bad, return_exceptions=True)
    assert {type(each) for each in failures} == {HostError}
    async with asyncio.timeout(20):
        await connect(good)
    await connector.close()
