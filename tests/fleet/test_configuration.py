"""The user's own SSH configuration, where ssh itself looks for it."""

from pathlib import Path

import pytest

from gputui.fleet.ssh.configuration import Destination, Here, SshConfiguration, route, this_machine
from gputui.model.hosts import Host
from tests.fleet.conftest import Reaching
from tests.processes import ended

HERE = Here("me", 1000, "/home/me", "laptop.lab", {"DIR": "/keys"})


async def test_ssh_is_asked_about_the_command_that_is_run_and_of_a_jump_host_about_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ssh = tmp_path / "ssh"
    jumps = 'case "$*" in *gpu-b*) echo proxyjump gpu-a;; esac'
    ssh.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\n{jumps}\n')
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    await route(Destination("gpu-b"), this_machine(), "start the agent")
    behind, jump = (tmp_path / "asked").read_text().splitlines()
    assert behind.endswith(" gpu-b start the agent") and "-W" not in behind
    assert jump.endswith(" -W localhost:22 gpu-a")


@pytest.mark.slow
async def test_a_match_exec_that_hangs_is_named_and_ended(
    reaching: Reaching, tmp_path: Path
) -> None:
    pid = tmp_path / "pid"
    (tmp_path / "config").write_text(f'Match exec "echo $$ > {pid}; exec sleep 100"\n  Port 1\n')
    reaching.configure(ssh_config=str(tmp_path / "config"), stage_timeout_s=1.5)
    host = await reaching.end(reaching.begin(Host("gpu-a", gpus=())))
    assert "`ssh -G gpu-a` did not end" in host.status.reason
    assert "Match exec" in host.status.hint
    await ended(int(pid.read_text()))


async def test_where_no_ssh_is_installed_a_host_is_refused_in_words(
    reaching: Reaching, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    host = await reaching.end(reaching.begin(Host("gpu-a", gpus=())))
    assert "OpenSSH's client (`ssh`, `ssh-keygen`) is not installed here" in host.status.reason


async def test_a_host_whose_configuration_gputui_cannot_follow_is_not_reached(
    reaching: Reaching, tmp_path: Path
) -> None:
    options = (
        "ProxyUseFdpass yes",
        "PKCS11Provider /p.so",
        "RevokedHostKeys /no",
        "BindInterface lo",
    )
    config = ("Host gpu-a", "HostName 127.0.0.1", "Port 1", "ProxyCommand x", "Tunnel no", *options)
    (tmp_path / "config").write_text("\n".join(config))
    reaching.configure(ssh_config=str(tmp_path / "config"))
    host = await reaching.end(reaching.begin(Host("gpu-a", gpus=())))
    assert f"has {', '.join(options)}, which gputui cannot follow" in host.status.reason


def test_paths_are_expanded_as_ssh_does() -> None:
    text = "\n".join(
        (
            "hostname gpu-a.lab",
            "user bob",
            "identityfile ~/.ssh/%r@%h",
            "identityfile ${DIR}/%u-%L-100%%",
            "identityfile none",
            "identityagent $SOCKET",
            "userknownhostsfile /a/b c /d",
        )
    )
    found = SshConfiguration("gpu-a", text, HERE)
    assert found.paths("identityfile") == ("/home/me/.ssh/bob@gpu-a.lab", "/keys/me-laptop-100%")
    assert found.agent == ""
    assert found.known_hosts("userknownhostsfile") == ("/a/b c", "/d")
