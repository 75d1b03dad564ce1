"""The user's own SSH configuration and known hosts, as ssh itself reads them."""

from pathlib import Path

import asyncssh
import pytest

from gputui.fleet.ssh.configuration import Destination, Here, SshConfiguration, route, this_machine
from gputui.fleet.ssh.host_keys import Entry, Verdict, find, judge, preferred, remember
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


async def test_known_keys_that_ssh_keygen_cannot_look_up_are_no_unknown_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ssh-keygen").write_text("#!/bin/sh\necho broken >&2; exit 255\n")
    (tmp_path / "ssh-keygen").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with pytest.raises(ValueError, match="broken"):
        await find([str(tmp_path / "ssh-keygen")], "gpu-a")


async def test_a_name_is_remembered_hashed_where_the_configuration_wants_it(tmp_path: Path) -> None:
    path = tmp_path / "known_hosts"
    path.write_text("# no newline at its end")
    key = asyncssh.generate_private_key("ssh-ed25519")
    line = key.export_public_key().decode().strip()
    remember(str(path), ["gpu-a", "10.0.0.1"], line, hash_names=True)
    assert path.read_text().count("\n|1|") == 2 and "gpu-a" not in path.read_text()
    for name in ("gpu-a", "10.0.0.1"):
        assert judge(await find([str(path)], name), key) is Verdict.KNOWN


def test_kinds_that_are_known_are_asked_for_first() -> None:
    names = ["ssh-ed25519-cert-v01@openssh.com", "ssh-ed25519", "rsa-sha2-512"]
    assert preferred([Entry("", "ssh-rsa", b"")], names)[0] == "rsa-sha2-512"
    assert preferred([Entry("", "ssh-ed25519", b"")], names) == names
    assert (
        preferred([Entry("@cert-authority", "ssh-rsa", b"")], names[1:] + names[:1])[0] == names[0]
    )
