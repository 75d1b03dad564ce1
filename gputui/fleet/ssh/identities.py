"""The keys to log in with: those of ssh-agent and of files, in the order in which ssh tries them.

A private key that is encrypted is opened when a server has said that it would take it, as ssh
does; each file is read, and its passphrase asked for, once for all the hosts of a fleet.
"""

import asyncio
import base64
import contextlib
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import asyncssh

from gputui.fleet.ssh.configuration import Authentication
from gputui.fleet.stages import Question, Stages
from gputui.process.background import Shared

OPENSSH_KEY = re.compile(
    rb"-----BEGIN OPENSSH PRIVATE KEY-----\s(.*)-----END OPENSSH PRIVATE KEY-----", re.DOTALL
)
OPENSSH_MAGIC = b"openssh-key-v1\0"

NOT_A_KEY = (OSError, ValueError, asyncssh.KeyImportError, asyncssh.KeyEncryptionError)


@dataclass(frozen=True, slots=True)
class KeyFile:
    """A key of an IdentityFile."""

    path: str
    public: asyncssh.SSHKey
    private: asyncssh.SSHKey | None
    """None for one that is encrypted, or that only ssh-agent has."""
    encrypted: bytes
    """The file of an encrypted key; b"" for none."""
    certificates: tuple[asyncssh.SSHCertificate, ...]


class FileKeyPair(asyncssh.SSHKeyPair):
    """A key of a file, opened when it is to sign."""

    def __init__(
        self,
        file: KeyFile,
        certificate: asyncssh.SSHCertificate | None,
        identities: "Identities",
        stages: Stages,
        tries: int,
    ) -> None:
        public = file.public
        kinds = public.sig_algorithms
        super().__init__(
            public.algorithm, public.algorithm, kinds, kinds, public.public_data, None, certificate
        )
        self._file, self._identities, self._stages, self._tries = file, identities, stages, tries

    async def sign_async(self, data: bytes) -> bytes:
        """Sign; raises ValueError, which makes asyncssh try the next key."""
        key = await self._identities.open(self._file, self._stages, self._tries)
        return key.sign(data, self.sig_algorithm)


class Identities:
    """The key files of one fleet, and the passphrases of them."""

    def __init__(self) -> None:
        self._files: dict[str, tuple[float, KeyFile]] = {}
        self._opened: dict[str, Shared[asyncssh.SSHKey]] = {}
        self.problems: dict[str, str] = {}
        """Path → why a key file could not be used."""

    async def keys(
        self, how: Authentication, agent: asyncssh.SSHAgentClient | None, stages: Stages
    ) -> list[asyncssh.SSHKeyPair]:
        """Return the keys to offer, in ssh's order.

        First ssh-agent's that the configuration names, then its others, then those of files.
        """
        files = await asyncio.to_thread(self._read, how.identity_files)
        certificates = [*_certificates(how.certificate_files), *_own_certificates(files)]
        held = await _held(agent)
        named = [file.public.public_data for file in files]
        named += [each.key.public_data for each in certificates]
        first = [held[blob] for blob in dict.fromkeys(named) if blob in held]
        others = [] if how.identities_only else [held[blob] for blob in held if blob not in named]
        offered: list[asyncssh.SSHKeyPair] = []
        for pair in (*first, *others):
            offered += await _certified(agent, pair, certificates)
        for file in files:
            if file.public.public_data in held or not (file.private or file.encrypted):
                continue
            mine = [each for each in certificates if each.key == file.public]
            offered += [
                FileKeyPair(file, certificate, self, stages, how.prompts)
                for certificate in (*mine, None)
            ]
        return offered

    async def open(self, file: KeyFile, stages: Stages, tries: int) -> asyncssh.SSHKey:
        """Return the private key of a file; raises ValueError without its passphrase."""
        if file.private:
            return file.private
        opened = self._opened.setdefault(file.path, Shared())
        with stages.pause():
            return await opened.get(partial(self._ask, file, stages, tries))

    async def _ask(self, file: KeyFile, stages: Stages, tries: int) -> asyncssh.SSHKey:
        text = f"Passphrase of the key {file.path}"
        question = Question("passphrase", text, True)
        for _ in range(tries):
            answer = await stages.ask(question)
            if not answer:
                break
            with contextlib.suppress(asyncssh.KeyImportError, asyncssh.KeyEncryptionError):
                key = await asyncio.to_thread(asyncssh.import_private_key, file.encrypted, answer)
                self.problems.pop(file.path, None)
                return key
            self.problems[file.path] = "its passphrase was wrong"
            question = replace(question, text=f"Wrong. {text}")
        self.problems.setdefault(file.path, "no passphrase was given")
        raise ValueError(self.problems[file.path])

    def _read(self, paths: Iterable[str]) -> list[KeyFile]:
        """Return the key files that are there and can be read, each read once."""
        found = []
        for path in paths:
            try:
                status = Path(path).stat()
                known = self._files.get(path)
                if known is None or known[0] != status.st_mtime:
                    known = self._files[path] = status.st_mtime, read_key_file(path)
                    self.problems.pop(path, None)
                file = known[1]
                if (file.private or file.encrypted) and _is_open_to_others(status):
                    self.problems[path] = f"others may read it, so it is not used: chmod 600 {path}"
                    file = replace(file, private=None, encrypted=b"")
                found.append(file)
            except FileNotFoundError:
                with contextlib.suppress(*NOT_A_KEY):
                    public = asyncssh.read_public_key(f"{path}.pub")
                    found.append(KeyFile(path, public, None, b"", ()))
            except NOT_A_KEY as error:
                self.problems[path] = getattr(error, "strerror", None) or str(error)
        return found


def _is_open_to_others(status: os.stat_result) -> bool:
    """Return whether ssh would not use a private key, its own user's. Source: authfile.c."""
    return status.st_uid == os.getuid() and bool(status.st_mode & 0o077)


def read_key_file(path: str) -> KeyFile:
    """Return the key of a file, private or public; raises what `NOT_A_KEY` lists."""
    data = Path(path).read_bytes()
    certificates = tuple(_certificates([f"{path}-cert.pub"]))
    if b"PRIVATE KEY-----" not in data:
        return KeyFile(path, asyncssh.import_public_key(data), None, b"", certificates)
    try:
        key = asyncssh.import_private_key(data)
    except (asyncssh.KeyImportError, asyncssh.KeyEncryptionError):
        return KeyFile(path, _public(path, data), None, data, certificates)
    return KeyFile(path, key.convert_to_public(), key, b"", certificates)


def _public(path: str, data: bytes) -> asyncssh.SSHKey:
    """Return the public part of an encrypted key: from its .pub file, or its own header."""
    with contextlib.suppress(*NOT_A_KEY):
        return asyncssh.read_public_key(f"{path}.pub")
    if found := OPENSSH_KEY.search(data):
        blob = _public_blob(base64.b64decode(found[1]))
        kind = blob[4 : 4 + int.from_bytes(blob[:4], "big")]
        return asyncssh.import_public_key(kind + b" " + base64.b64encode(blob))
    raise ValueError(f"it is encrypted, and {path}.pub is not there")


def _public_blob(data: bytes) -> bytes:
    """Return the public key in the head of an OpenSSH private key. Source: PROTOCOL.key."""
    rest = data.removeprefix(OPENSSH_MAGIC)
    strings = []
    for position in range(4):
        if position == 3:
            rest = rest[4:]  # the number of keys: one
        end = 4 + int.from_bytes(rest[:4], "big")
        strings.append(rest[4:end])
        rest = rest[end:]
    return strings[3]


def _certificates(paths: Iterable[str]) -> Iterator[asyncssh.SSHCertificate]:
    """Yield the certificates of files that are there."""
    for path in paths:
        with contextlib.suppress(*NOT_A_KEY):
            yield asyncssh.read_certificate(path)


def _own_certificates(files: Iterable[KeyFile]) -> Iterator[asyncssh.SSHCertificate]:
    for file in files:
        yield from file.certificates


async def _held(agent: asyncssh.SSHAgentClient | None) -> dict[bytes, asyncssh.SSHKeyPair]:
    """Return ssh-agent's keys, by public key; {} if it does not answer."""
    if agent is None:
        return {}
    try:
        return {pair.public_data: pair for pair in await agent.get_keys()}
    except (OSError, ValueError):
        return {}


async def _certified(
    agent: asyncssh.SSHAgentClient | None,
    pair: asyncssh.SSHKeyPair,
    certificates: Iterable[asyncssh.SSHCertificate],
) -> list[asyncssh.SSHKeyPair]:
    """Return a key of the agent with each certificate for it, and alone."""
    pairs = [pair]
    for certificate in certificates:
        if agent and certificate.key.public_data == pair.key_public_data and not pair.has_cert:
            (again,) = await agent.get_keys([pair.public_data])
            again.set_certificate(certificate)
            pairs.insert(-1, again)
    return pairs
