"""Many hosts at once, on a real sshd whose login shell takes a second and wants a lock.

All of them are this machine, which runs their shells and agents too: hence the generous bounds.
"""

import contextlib
import os
import re
import socket
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gputui.fleet.deploy.remote import load_pack
from gputui.fleet.ssh import routes
from gputui.model.hosts import Host
from gputui.model.snapshot import HostState as S
from tests.fleet.conftest import Reaching, own_sshd
from tests.processes import nothing_left
from tests.sshd import SshHosts

SHELL = """#!/bin/sh
sleep 1
exec 9>{folder}/lock; flock 9; sleep {locked_s}; exec 9>&-
exec sh -c "$SSH_ORIGINAL_COMMAND"
"""
MOST_PSS_BYTES = 25 * 2**20
"""Of an agent before its forkserver."""


@pytest.fixture
def slow_sshd(ssh_folder: SshHosts) -> Iterator[SshHosts]:
    """An sshd with its usual limits, MaxStartups and MaxSessions, and a slow login shell."""
    shell = ssh_folder.folder / "shell"
    shell.write_text(SHELL.format(folder=ssh_folder.folder, locked_s=0.1))
    shell.chmod(0o755)
    with own_sshd(ssh_folder, f"ForceCommand {shell}\n", "ssh1"):
        yield ssh_folder


@pytest.mark.slow
@pytest.mark.parametrize(
    "count", [16, pytest.param(64, marks=[pytest.mark.long, pytest.mark.timeout(550)])]
)
async def test_hosts_at_once_all_come_up_behind_one_slow_shell(
    reaching: Reaching, slow_sshd: SshHosts, count: int
) -> None:
    reaching.shared_pack = load_pack()
    names = [f"many{number}" for number in range(count)]
    slow_sshd.describe(*(replace(slow_sshd.hosts[0], name=name) for name in names))
    id = f"many-{os.urandom(4).hex()}"
    reaching.configure(cluster_id=id, ssh_config=str(slow_sshd.config), stage_timeout_s=120.0)
    reaching.configure(lease_s=300.0, silence_s=120.0)
    hosts = [
        reaching.begin(Host(name, gpus=(), python=sys.executable), scheduler=False)
        for name in names
    ]
    for host in hosts:
        await reaching.listeners[host.name].until(
            lambda host=host: host.state in (S.CHECKING, S.FAILED), bound_s=500
        )
    assert {host.status.reason for host in hosts} == {"waiting for the scheduler"}
    pss = sum(pss_bytes(host.facts.agent_pid) for host in hosts if host.facts) / count
    assert 0 < pss < MOST_PSS_BYTES
    await reaching.close()
    await nothing_left(id)


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port whose queue of connections is full: it answers nothing, as a host that is off."""
    with (
        socket.create_server(("127.0.0.1", 0), backlog=0) as server,
        contextlib.ExitStack() as full,
    ):
        for _ in range(4):
            waiting = full.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(server.getsockname())
        yield server.getsockname()[1]


async def test_hosts_that_are_off_hold_up_no_other(
    reaching: Reaching,
    openssh_hosts: SshHosts,
    silent_port: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(routes, "HANDSHAKES_AT_ONCE", 1)
    config = tmp_path / "config"
    off = "".join(f"Host off{n}\n  HostName 127.0.0.1\n  Port {silent_port}\n" for n in range(3))
    config.write_text(off + openssh_hosts.config.read_text())
    reaching.configure(ssh_config=str(config), stage_timeout_s=20.0)
    silent = [reaching.begin(Host(f"off{n}", gpus=())) for n in range(3)]
    for host in silent:
        listener = reaching.listeners[host.name]
        await listener.until(lambda listener=listener: S.CONNECTING in listener.states)
    good = await reaching.end(reaching.begin(Host("ssh1", gpus=())))
    assert good.status.reason == ""
    assert {host.state for host in silent} == {S.CONNECTING}


def pss_bytes(pid: int) -> int:
    """Return a process's proportional share of memory."""
    found = re.search(r"^Pss: +(\d+) kB", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.M)
    return int(found[1]) * 1024
