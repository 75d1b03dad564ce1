"""Which host keys are taken: looked up by name and port, as OpenSSH does."""

from pathlib import Path

import asyncssh
import pytest

from gputui.fleet.ssh.host_keys import Entry, Verdict, find, hashed, judge, preferred, remember
from gputui.model.hosts import Host
from gputui.model.snapshot import HostState as S
from tests.fleet.conftest import Reaching

KEY, OTHER, AUTHORITY = (asyncssh.generate_private_key("ssh-ed25519") for _ in range(3))


def public(key: asyncssh.SSHKey) -> str:
    return key.export_public_key().decode().strip()


LINES = [
    (f"[gpu-a]:2222 {public(KEY)}", Verdict.KNOWN),
    (f"[gpu-?]:* {public(KEY)}", Verdict.KNOWN),
    (f"{hashed('[gpu-a]:2222', b'01234567890123456789')} {public(KEY)}", Verdict.KNOWN),
    (f"[gpu-a]:2222 {public(OTHER)}", Verdict.CHANGED),
    (f"*,![gpu-a]:2222 {public(KEY)}", Verdict.NEW),
    (f"@revoked gpu-a {public(KEY)}\n[gpu-a]:2222 {public(KEY)}", Verdict.KNOWN),
    (f"@cert-authority * {public(AUTHORITY)}", Verdict.NEW),
    ("not a line\n\n@what gpu-a x y\n[gpu-a]:2222 ssh-ed25519 ???", Verdict.NEW),
    (f"|1|c2FsdA==|é {public(KEY)}\n[gpu-a]:2222 {public(KEY)}", Verdict.KNOWN),
]


@pytest.mark.parametrize(("lines", "verdict"), LINES, ids=map(str, range(len(LINES))))
async def test_a_key_is_known_by_name_and_port(
    tmp_path: Path, lines: str, verdict: Verdict
) -> None:
    path = tmp_path / "known_hosts"
    path.write_text(lines)
    known = await find([str(tmp_path / "nothing"), str(path)], "[gpu-a]:2222")
    assert judge(known, KEY) is verdict


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
    remember(str(path), ["gpu-a", "10.0.0.1"], public(KEY), hash_names=True)
    assert path.read_text().count("\n|1|") == 2 and "gpu-a" not in path.read_text()
    for name in ("gpu-a", "10.0.0.1"):
        assert judge(await find([str(path)], name), KEY) is Verdict.KNOWN


def test_kinds_that_are_known_are_asked_for_first() -> None:
    names = ["ssh-ed25519-cert-v01@openssh.com", "ssh-ed25519", "rsa-sha2-512"]
    assert preferred([Entry("", "ssh-rsa", b"")], names)[0] == "rsa-sha2-512"
    assert preferred([Entry("", "ssh-ed25519", b"")], names) == names
    assert (
        preferred([Entry("@cert-authority", "ssh-rsa", b"")], names[1:] + names[:1])[0] == names[0]
    )


@pytest.mark.parametrize("second", ["bastion", "gpu-b"])
async def test_a_jump_host_behind_itself_is_named_and_no_hang(
    reaching: Reaching, tmp_path: Path, second: str
) -> None:
    config = tmp_path / "config"
    config.write_text(f"Host bastion\n  ProxyJump {second}\nHost *\n  ProxyJump bastion\n")
    reaching.configure(ssh_config=str(config))
    host = await reaching.end(reaching.begin(Host("gpu-a", gpus=())), bound_s=5)
    assert host.state is S.FAILED
    assert "goes in a loop: gpu-a → bastion" in host.status.reason
