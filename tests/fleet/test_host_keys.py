"""Which host keys are taken: looked up by name and port, as OpenSSH does."""

from dataclasses import replace
from pathlib import Path

import asyncssh
import pytest

from gputui.fleet.ssh.configuration import SshConfiguration, parse
from gputui.fleet.ssh.evaluation import this_machine
from gputui.fleet.ssh.host_keys import HostKeys, KeyVerdict
from gputui.fleet.ssh.known_hosts import hashed
from gputui.model.hosts import Host
from gputui.model.snapshot import HostState as S
from tests.fleet.conftest import Reaching
from tests.sshd import SshHosts

KEY, OTHER, AUTHORITY = (asyncssh.generate_private_key("ssh-ed25519") for _ in range(3))


def public(key: asyncssh.SSHKey) -> str:
    return key.export_public_key().decode().strip()


def configured(tmp_path: Path, lines: str, *options: str) -> SshConfiguration:
    """Return gpu-a, port 2222, with a known_hosts of these lines."""
    (tmp_path / "known_hosts").write_text(lines)
    text = "\n".join(
        ("hostname gpu-a", "port 2222", f"userknownhostsfile {tmp_path}/known_hosts", *options)
    )
    return parse(text, "gpu-a", this_machine())


@pytest.mark.parametrize(
    ("lines", "verdict"),
    [
        (f"[gpu-a]:2222 {public(KEY)}", KeyVerdict.KNOWN),
        (f"[GPU-A]:2222,other {public(KEY)}", KeyVerdict.KNOWN),
        (f"[gpu-?]:* {public(KEY)}", KeyVerdict.KNOWN),
        (f"{hashed('[gpu-a]:2222', b'01234567890123456789')} {public(KEY)}", KeyVerdict.KNOWN),
        (f"gpu-a {public(KEY)}", KeyVerdict.KNOWN),
        (f"gpu-a {public(OTHER)}", KeyVerdict.NEW),
        (f"[gpu-a]:2222 {public(OTHER)}", KeyVerdict.CHANGED),
        (f"[gpu-a]:2222 {public(OTHER)}\ngpu-a {public(KEY)}", KeyVerdict.CHANGED),
        (f"[127.0.0.1]:2222 {public(KEY)}", KeyVerdict.NEW),
        (f"[gpu-b]:2222 {public(KEY)}", KeyVerdict.NEW),
        (f"*,![gpu-a]:2222 {public(KEY)}", KeyVerdict.KNOWN),
        (f"@revoked [gpu-a]:2222 {public(KEY)}\n[gpu-a]:2222 {public(KEY)}", KeyVerdict.REVOKED),
        (f"@revoked * {public(KEY)}\n[gpu-a]:2222 {public(KEY)}", KeyVerdict.REVOKED),
        (f"@revoked gpu-a {public(KEY)}\n[gpu-a]:2222 {public(KEY)}", KeyVerdict.KNOWN),
        (f"@cert-authority * {public(AUTHORITY)}", KeyVerdict.NEW),
        ("not a line\n\n@what gpu-a x y\n[gpu-a]:2222 ssh-ed25519 ???", KeyVerdict.NEW),
        (f"|1|c2FsdA==|é {public(KEY)}\n[gpu-a]:2222 {public(KEY)}", KeyVerdict.KNOWN),
    ],
    ids=map(str, range(17)),  # keys differ from one process of pytest-xdist to the next
)
def test_a_key_is_known_by_name_and_port(tmp_path: Path, lines: str, verdict: KeyVerdict) -> None:
    keys = HostKeys.of(configured(tmp_path, lines))
    assert keys.judge(KEY) is verdict


def test_a_server_that_shows_another_key_after_one_was_accepted_has_changed(
    tmp_path: Path,
) -> None:
    keys = HostKeys.of(configured(tmp_path, ""))
    assert keys.judge(KEY) is KeyVerdict.NEW
    keys.accept()
    assert keys.judge(KEY) is KeyVerdict.KNOWN
    assert keys.judge(OTHER) is KeyVerdict.CHANGED


def test_an_alias_is_looked_up_in_place_of_name_and_port(tmp_path: Path) -> None:
    found = configured(tmp_path, f"farm {public(KEY)}", "hostkeyalias farm")
    assert HostKeys.of(found).judge(KEY) is KeyVerdict.KNOWN
    found = configured(tmp_path, f"[gpu-a]:2222 {public(KEY)}", "hostkeyalias farm")
    assert HostKeys.of(found).judge(KEY) is KeyVerdict.NEW


def test_a_key_of_the_revoked_list_is_revoked_whatever_else_says(tmp_path: Path) -> None:
    (tmp_path / "revoked").write_text(f"# lost in May\n{public(KEY)} a comment\n")
    lines = f"[gpu-a]:2222 {public(KEY)}"
    found = configured(tmp_path, lines, f"revokedhostkeys {tmp_path}/revoked")
    assert HostKeys.of(found).judge(KEY) is KeyVerdict.REVOKED


def test_a_list_of_revoked_keys_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    found = configured(tmp_path, "", f"revokedhostkeys {tmp_path}/nothing")
    with pytest.raises(OSError, match="nothing"):
        HostKeys.of(found)


def test_a_short_rsa_key_is_weak(tmp_path: Path) -> None:
    key = asyncssh.generate_private_key("ssh-rsa", key_size=1024)
    lines = f"[gpu-a]:2222 {public(key)}"
    found = configured(tmp_path, lines, "requiredrsasize 2048")
    assert HostKeys.of(found).judge(key) is KeyVerdict.WEAK
    assert HostKeys.of(configured(tmp_path, lines)).judge(key) is KeyVerdict.KNOWN


def test_kinds_that_are_known_are_asked_for_first(tmp_path: Path) -> None:
    key = asyncssh.generate_private_key("ssh-rsa", key_size=1024)
    keys = HostKeys.of(configured(tmp_path, f"[gpu-a]:2222 {public(key)}"))
    asked = keys.preferred(["ssh-ed25519-cert-v01@openssh.com", "ssh-ed25519", "rsa-sha2-512"])
    assert asked == ("rsa-sha2-512", "ssh-ed25519")
    keys = HostKeys.of(configured(tmp_path, f"@cert-authority * {public(AUTHORITY)}"))
    assert keys.preferred(["ssh-ed25519-cert-v01@openssh.com", "ssh-ed25519"])[0].endswith(".com")


def test_a_name_is_remembered_hashed_where_the_configuration_wants_it(tmp_path: Path) -> None:
    found = configured(tmp_path, "", "hashknownhosts yes")
    keys = HostKeys.of(found)
    keys.judge(KEY)
    keys.remember()
    written = (tmp_path / "known_hosts").read_text()
    assert written.startswith("|1|") and "gpu-a" not in written
    assert HostKeys.of(found).judge(KEY) is KeyVerdict.KNOWN


async def test_a_changed_key_of_a_known_name_is_refused_though_its_address_is_known(
    reaching: Reaching, asyncssh_hosts: SshHosts
) -> None:
    first = asyncssh_hosts.hosts[0]
    by_name = replace(first, address="localhost")
    asyncssh_hosts.config.write_text(asyncssh_hosts.section(by_name))
    asyncssh_hosts.known_hosts.write_text(
        f"[127.0.0.1]:{first.port} {Path(f'{asyncssh_hosts.host_key}.pub').read_text()}"
        f"[localhost]:{first.port} {public(OTHER)}\n"
    )
    reaching.configure(ssh_config=str(asyncssh_hosts.config))
    host = await reaching.end(reaching.begin(Host("ssh1", gpus=())))
    assert host.state is S.FAILED
    assert f"the host key of [localhost]:{first.port} has changed" in host.status.reason


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
