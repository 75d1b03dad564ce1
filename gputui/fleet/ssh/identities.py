"""The keys to log in with: those of ssh-agent and of files, in the order in which ssh tries them.

A private key that is encrypted is opened when a server has said that it would take it, as ssh
does; each file is read, and its passphrase asked for, once for all the hosts of a fleet.
"""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import asyncssh

from gputui.fleet.ssh.configuration import SshConfiguration
from gputui.fleet.stages import Question, Stages
from gputui.process.background import Shared
from gputui.process.child import run

NOT_A_KEY = (OSError, ValueError, asyncssh.KeyImportError, asyncssh.KeyEncryptionError)
READ_S = 10.0
AGENT_S = 60.0
"""How long ssh-agent may take: it may wait for a person who unlocks it."""


@dataclass(frozen=True, slots=True)
class KeyFile:
    """An IdentityFile."""

    path: str
    public: asyncssh.SSHKey | None
    """None where only the private key would say, and that is encrypted."""
    private: asyncssh.SSHKey | None
    """None for one that is encrypted, or that only ssh-agent has."""
    encrypted: bytes
    """The file of an encrypted key; b"" for none."""

    @property
    def blob(self) -> bytes:
        """The public key as SSH sends it; b"" where it is not known."""
        return self.public.public_data if self.public else b""


class FileKeyPair(asyncssh.SSHKeyPair):
    """A key of a file, opened when it is to sign."""

    def __init__(
        self,
        public: asyncssh.SSHKey,
        certificate: asyncssh.SSHCertificate | None,
        opened: Callable[[], Awaitable[asyncssh.SSHKey]],
    ) -> None:
        kinds = public.sig_algorithms
        super().__init__(
            public.algorithm, public.algorithm, kinds, kinds, public.public_data, None, certificate
        )
        self._opened = opened

    async def sign_async(self, data: bytes) -> bytes:
        """Sign; raises ValueError, which makes asyncssh try the next key."""
        return (await self._opened()).sign(data, self.sig_algorithm)


class Identities:
    """The key files of one fleet, and the passphrases of them."""

    def __init__(self) -> None:
        self._files: dict[tuple[str, float], Shared[KeyFile]] = {}
        self._opened: dict[str, Shared[asyncssh.SSHKey]] = {}
        self.problems: dict[str, str] = {}
        """Path → why a key file could not be used."""

    async def keys(
        self,
        configuration: SshConfiguration,
        agent: asyncssh.SSHAgentClient | None,
        stages: Stages,
    ) -> AsyncIterator[asyncssh.SSHKeyPair]:
        """Yield the keys to offer. Source: pubkey_prepare in OpenSSH's sshconnect2.c.

        First come certificates that the configuration names, then ssh-agent's keys, those first
        that an IdentityFile names, then keys of files, each before a certificate next to it.
        """
        files = [
            file for path in configuration.paths("identityfile") if (file := await self._read(path))
        ]
        given, tries = configuration.paths("certificatefile"), configuration.prompts
        held = await self._held(configuration.agent, agent, stages)
        for certificate in filter(None, map(_certificate, given)):
            async for pair in self._certified(certificate, files, agent, held, stages, tries):
                yield pair
        named = [file.blob for file in files]
        named += [own.public_data for own in map(_certificate, _beside(files)) if own]
        for pair in sorted(held.values(), key=lambda pair: pair.public_data not in named):
            if pair.public_data in named or not configuration.is_on("identitiesonly"):
                yield pair
        for file in files:
            opened = partial(self.open, file, stages, tries)
            if file.blob not in held and (file.private or file.encrypted):
                with contextlib.suppress(ValueError):
                    public = file.public or (await opened()).convert_to_public()
                    yield FileKeyPair(public, None, opened)
            if not given and (own := _certificate(*_beside([file]))):
                async for pair in self._certified(own, [file], agent, held, stages, tries):
                    yield pair

    async def _certified(
        self,
        certificate: asyncssh.SSHCertificate,
        files: Iterable[KeyFile],
        agent: asyncssh.SSHAgentClient | None,
        held: Mapping[bytes, asyncssh.SSHKeyPair],
        stages: Stages,
        tries: int,
    ) -> AsyncIterator[asyncssh.SSHKeyPair]:
        """Yield a certificate with the private key for it, where there is one."""
        blob = certificate.key.public_data
        file = next((file for file in files if file.blob == blob), None)
        if agent and blob in held:
            (pair,) = await agent.get_keys([blob])
            pair.set_certificate(certificate)
            yield pair
        elif file and (file.private or file.encrypted):
            opened = partial(self.open, file, stages, tries)
            yield FileKeyPair(certificate.key, certificate, opened)

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

    async def _read(self, path: str) -> KeyFile | None:
        """Return a key file, read once; None where it cannot be used."""
        there = path if Path(path).exists() else f"{path}.pub"
        try:
            status = Path(there).stat()
            shared = self._files.setdefault((there, status.st_mtime), Shared())
            file = await shared.get(partial(_read_key_file, path, there))
        except FileNotFoundError:
            return None
        except NOT_A_KEY as error:
            self.problems[path] = getattr(error, "strerror", None) or str(error)
            return None
        if (file.private or file.encrypted) and _is_open_to_others(status):
            self.problems[path] = f"others may read it, so it is not used: chmod 600 {path}"
            return replace(file, private=None, encrypted=b"")
        return file

    async def _held(
        self, path: str, agent: asyncssh.SSHAgentClient | None, stages: Stages
    ) -> dict[bytes, asyncssh.SSHKeyPair]:
        """Return ssh-agent's keys, by public key; {} if it does not answer."""
        if agent is None:
            return {}
        self.problems.pop(path, None)
        try:
            async with asyncio.timeout(AGENT_S):
                with stages.pause():
                    return {pair.public_data: pair for pair in await agent.get_keys()}
        except TimeoutError:
            self.problems[path] = f"ssh-agent did not answer within {AGENT_S:g} s"
        except (OSError, ValueError):
            pass
        return {}


def _is_open_to_others(status: os.stat_result) -> bool:
    """Return whether ssh would not use a private key, its own user's. Source: authfile.c."""
    return status.st_uid == os.getuid() and bool(status.st_mode & 0o077)


async def _read_key_file(path: str, there: str) -> KeyFile:
    """Return the key of a file, private or public; raises what `NOT_A_KEY` lists."""
    data = Path(there).read_bytes()
    public = await _public(path)
    if b"PRIVATE KEY-----" not in data:
        return KeyFile(path, public or asyncssh.import_public_key(data), None, b"")
    try:
        key = asyncssh.import_private_key(data)
    except (asyncssh.KeyImportError, asyncssh.KeyEncryptionError):
        return KeyFile(path, public, None, data)
    return KeyFile(path, key.convert_to_public(), key, b"")


async def _public(path: str) -> asyncssh.SSHKey | None:
    """Return the public key of a file, of its .pub file, or in the head of a private key."""
    ended = await run(["ssh-keygen", "-e", "-P", "", "-f", path], READ_S)
    try:
        return None if ended.status else asyncssh.import_public_key(ended.output)
    except asyncssh.KeyImportError:
        return None


def _beside(files: Iterable[KeyFile]) -> list[str]:
    return [f"{file.path}-cert.pub" for file in files]


def _certificate(path: str) -> asyncssh.SSHCertificate | None:
    with contextlib.suppress(*NOT_A_KEY):
        return asyncssh.read_certificate(path)
    return None
