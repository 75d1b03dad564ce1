"""Which host keys are taken: looked up by name and port, as OpenSSH does."""

from pathlib import Path

import asyncssh
import pytest

from gputui.fleet.ssh.host_keys import Entry, Verdict, find, judge, preferred, remember

KEY = asyncssh.generate_private_key("ssh-ed25519")


def public(key: asyncssh.SSHKey) -> str:
    return key.export_public_key().decode().strip()


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
