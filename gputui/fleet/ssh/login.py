"""The client's side of one handshake: which host key is taken, which keys and passwords offered.

Keys are those of ssh-agent and of files, in the order in which ssh tries them. A private key that
is encrypted is opened when a server has said that it would take it, as ssh does; each file is read,
and its passphrase asked for, once for all the hosts of a fleet.
"""

import asyncio
import contextlib
import os
import shutil
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import asyncssh
from asyncssh.encryption import get_encryption_algs
from asyncssh.kex import get_kex_algs
from asyncssh.mac import get_mac_algs
from asyncssh.public_key import get_certificate_algs, get_public_key_algs

from gputui.errors import HostError
from gputui.fleet.ssh.configuration import SshConfiguration
from gputui.fleet.ssh.connection import Proxy
from gputui.fleet.ssh.host_keys import HostKeys, Shown
from gputui.fleet.stages import PATIENT, Question, Stages
from gputui.model.frozen import frozen
from gputui.process.background import Shared
from gputui.process.child import run

NOT_A_KEY = (OSError, ValueError)
READ_S = 10.0
AGENT_S = 60.0
"""How long ssh-agent may take: it may wait for a person who unlocks it."""


@frozen
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
        read = [await self._read(path) for path in configuration.paths("identityfile")]
        files = [file for file in read if file]
        certificates = {file.path: _certificate(f"{file.path}-cert.pub") for file in files}
        given = configuration.paths("certificatefile")
        held = await self._held(configuration.agent, agent, stages)

        def opener(file: KeyFile) -> Callable[[], Awaitable[asyncssh.SSHKey]]:
            return partial(self._open, file, stages, configuration.prompts)

        async def certified(
            certificate: asyncssh.SSHCertificate,
        ) -> Sequence[asyncssh.SSHKeyPair]:
            """Return a certificate with the private key for it, where there is one."""
            blob = certificate.key.public_data
            if agent and blob in held:
                (pair,) = await agent.get_keys([blob])
                pair.set_certificate(certificate)
                return [pair]
            private = (each for each in files if each.blob == blob and _has_private(each))
            return [FileKeyPair(certificate.key, certificate, opener(each)) for each in private][:1]

        for certificate in filter(None, map(_certificate, given)):
            for pair in await certified(certificate):
                yield pair
        named = [file.blob for file in files]
        named += [own.public_data for own in certificates.values() if own]
        for pair in sorted(held.values(), key=lambda pair: pair.public_data not in named):
            if pair.public_data in named or not configuration.is_on("identitiesonly"):
                yield pair
        for file in files:
            if file.blob not in held and _has_private(file):
                with contextlib.suppress(ValueError):
                    public = file.public or (await opener(file)()).convert_to_public()
                    yield FileKeyPair(public, None, opener(file))
            if not given and (own := certificates[file.path]):
                for pair in await certified(own):
                    yield pair

    async def _open(self, file: KeyFile, stages: Stages, tries: int) -> asyncssh.SSHKey:
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
            if not (answer := await stages.ask(question)):
                break
            with contextlib.suppress(asyncssh.KeyImportError, asyncssh.KeyEncryptionError):
                key = await asyncio.to_thread(asyncssh.import_private_key, file.encrypted, answer)
                self.problems.pop(file.path, None)
                return key
            self.problems[file.path] = "its passphrase was wrong"
            question = replace(question, text=f"Wrong. {text}")
        raise ValueError(self.problems.setdefault(file.path, "no passphrase was given"))

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
        # ssh uses no private key of its own user's that others may read. Source: authfile.c.
        if _has_private(file) and status.st_uid == os.getuid() and status.st_mode & 0o077:
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


def _has_private(file: KeyFile) -> bool:
    return bool(file.private or file.encrypted)


async def _read_key_file(path: str, there: str) -> KeyFile:
    """Return the key of a file, private or public; raises what `NOT_A_KEY` lists.

    ssh-keygen finds the public key in a file, in its .pub file, or in the head of a private key.
    """
    data, public = Path(there).read_bytes(), None
    is_private = b"PRIVATE KEY-----" in data
    if is_private:
        with contextlib.suppress(asyncssh.KeyImportError, asyncssh.KeyEncryptionError):
            key = asyncssh.import_private_key(data)
            return KeyFile(path, key.convert_to_public(), key, b"")
    ended = await run(["ssh-keygen", "-e", "-P", "", "-f", path], READ_S)
    with contextlib.suppress(asyncssh.KeyImportError):
        public = asyncssh.import_public_key(ended.output) if ended.status == 0 else None
    if is_private:
        return KeyFile(path, public, None, data)
    return KeyFile(path, public or asyncssh.import_public_key(data), None, b"")


def _certificate(path: str) -> asyncssh.SSHCertificate | None:
    with contextlib.suppress(*NOT_A_KEY):
        return asyncssh.read_certificate(path)
    return None


class Login(asyncssh.SSHClient):
    """Answers asyncssh's questions during a handshake, asking the user where necessary."""

    def __init__(
        self, configuration: SshConfiguration, identities: Identities, stages: Stages
    ) -> None:
        self.configuration = configuration
        self.keys = HostKeys(configuration, stages)
        self.proxy: Proxy | None = None
        """The ProxyCommand that the connection is made through."""
        self.shown: Shown | None = None
        """The server's key from the key exchange."""
        self.verdict: bool | HostError | None = None
        """On its host key: why it is refused, or whether it may be sent a password; None before
        that is decided, and nothing is sent to log in."""
        self.address = ""
        """Where a direct connection leads; "" through others."""
        self.turn = contextlib.AsyncExitStack()
        """What to give back after the key exchange: a person may be asked then."""
        self._tries = configuration.prompts
        """How often a password may be asked for: not again where none was given."""
        self._stages = stages
        self._password_tries = self._kbdint_tries = 0
        self._wrong = False
        """Whether the next question comes again because its answer was wrong."""
        self._agent = asyncssh.SSHAgentClient(agent) if (agent := configuration.agent) else None
        self._offers = identities.keys(configuration, self._agent, stages)
        self._connection: asyncssh.SSHClientConnection | None = None
        self._verifying: asyncio.Task[None] | None = None

    @property
    def is_trusted(self) -> bool:
        """Whether the host key is."""
        return isinstance(self.verdict, bool)

    @property
    def heard_version(self) -> bool:
        """Whether the server has sent its SSH version."""
        return bool(self._connection and self._connection.get_extra_info("server_version"))

    def connection_made(self, conn: asyncssh.SSHClientConnection) -> None:
        """Have the host key checked between the key exchange and the login.

        asyncssh 2.24 asks about host keys where nothing can be awaited.
        """
        self._connection = conn
        self._begin = conn.try_next_auth
        conn.validate_server_host_key = self._exchanged  # type: ignore[method-assign]
        conn.try_next_auth = self._try_next_auth  # type: ignore[method-assign]

    def _exchanged(self, key_data: bytes) -> asyncssh.SSHKey:
        """Return the key that must have signed a key exchange, the same in all of them."""
        self._stages.progress()
        self.shown = self.shown or Shown.of(key_data)
        if self.shown.blob != key_data:
            raise asyncssh.HostKeyNotVerifiable("the server has another host key now")
        return self.shown.key

    def _try_next_auth(self, *, next_method: bool = False) -> None:
        """Log in once the host key is trusted."""
        if self.is_trusted:
            self._begin(next_method=next_method)
        elif self._connection:
            self._verifying = self._connection.create_task(self._begin_when_trusted())

    async def _begin_when_trusted(self) -> None:
        assert self.shown
        bound_s = self._stages.timeout_s * PATIENT
        self._stages.wait_longer(
            f"the host key of {self.keys.name} was not looked up within {bound_s:g} s",
            "does a KnownHostsCommand of the SSH configuration hang?",
        )
        await self.turn.aclose()
        try:
            self.verdict = await self.keys.verify(self.shown, self.address)
        except HostError as error:
            self.verdict = error
            raise asyncssh.HostKeyNotVerifiable(error.reason) from error
        self._stages.wait_longer(
            f"the login of {self.configuration.login_name} was not decided within {bound_s:g} s",
            "does `ssh` to it take as long? Its PAM modules or directory service may wait",
        )
        if self._connection and not self._connection.is_closed():
            self._begin()

    async def public_key_auth_requested(self) -> list[asyncssh.SSHKeyPair] | None:
        """Return the next key, for a host that is trusted only."""
        self._stages.progress()
        key = await anext(self._offers, None) if self.is_trusted else None
        return [key] if key else None

    async def password_auth_requested(self) -> str | None:
        """Ask the user for the password."""
        self._password_tries += 1
        if self.verdict is not True or self._password_tries > self._tries:
            return None
        self._wrong = self._password_tries > 1
        return await self._ask(f"Password of {self.configuration.login_name}")

    async def kbdint_auth_requested(self) -> str | None:
        """Accept keyboard-interactive questions, of which each try may have several rounds."""
        self._stages.progress()
        self._kbdint_tries += 1
        self._wrong = self._kbdint_tries > 1
        return "" if self.verdict is True and self._kbdint_tries <= self._tries else None

    async def kbdint_challenge_received(
        self, name: str, instructions: str, lang: str, prompts: Sequence[tuple[str, bool]]
    ) -> list[str] | None:
        """Pass the server's questions on to the user, with the host's name before each."""
        self._stages.progress()
        answers = []
        for prompt, echo in prompts:
            words = " ".join(filter(None, (name, instructions, prompt.strip())))
            answer = await self._ask(f"{self.configuration.login_name}: {words}", secret=not echo)
            if answer is None:
                return None
            answers.append(answer)
        return answers

    async def close(self, kind: object = None, error: object = None, trace: object = None) -> None:
        """End what the login began; a person who is asked may answer a server that has hung up."""
        try:
            if self._verifying and isinstance(error, asyncssh.ConnectionLost):
                await asyncio.wait([self._verifying])
        finally:
            if self._verifying:
                self._verifying.cancel()
            if self._agent:
                self._agent.close()
                with contextlib.suppress(OSError):
                    await self._agent.wait_closed()

    async def _ask(self, text: str, *, secret: bool = True) -> str | None:
        self._stages.progress()
        again, self._wrong = "Wrong. " if self._wrong else "", False
        answer = await self._stages.ask(Question("password", f"{again}{text}", secret))
        if answer is None:
            self._tries = 0
        return answer


def keysign_of(configuration: SshConfiguration) -> str | None:
    """Return OpenSSH's program that signs as this host, where the configuration has it do so."""
    wanted = configuration.is_on("hostbasedauthentication")
    path = os.pathsep.join(("/usr/lib/openssh", "/usr/libexec/openssh", "/usr/libexec"))
    return shutil.which("ssh-keysign", path=path) if wanted else None


def options_for(
    login: Login, host_keys: Sequence[str], sock: socket.socket | None
) -> dict[str, Any]:
    """Return asyncssh's options, all of them, so that it reads nothing by itself.

    They allow nothing that ssh itself would refuse. Raises ValueError, by name, where no allowed
    algorithm is available.
    """
    configuration = login.configuration

    def allowed(option: str, had: Iterable[bytes], names: Sequence[str] = ()) -> Sequence[str]:
        """Return the allowed algorithms that asyncssh has, too; () leaves it the choice."""
        names = names or configuration.names(option.lower())
        ours = {name.decode() for name in had}
        both = [name for name in names if name in ours]
        if names and not both:
            raise ValueError(f"{option} allows only {','.join(names)}, which gputui does not have")
        return both or ()

    keysign = keysign_of(configuration)
    kinds = [*get_public_key_algs(), *get_certificate_algs()]
    ciphers = allowed("Ciphers", get_encryption_algs())
    if ciphers and ciphers[0].startswith("chacha20"):
        # ssh's first choice takes asyncssh 47 µs for a packet, AES-GCM 7.
        ciphers = sorted(ciphers, key=lambda name: "-gcm" not in name)
    return {
        "config": None,
        "host": configuration.hostname,
        "port": configuration.port,
        "sock": sock,
        "client_factory": lambda: login,
        "username": configuration.user,
        "known_hosts": lambda *_: ([], [], [], [], [], [], []),
        "client_keys": None,
        "public_key_auth": configuration.is_on("pubkeyauthentication", "yes"),
        "password_auth": configuration.is_on("passwordauthentication", "yes"),
        "kbdint_auth": configuration.is_on("kbdinteractiveauthentication", "yes"),
        "host_based_auth": bool(keysign),
        "client_host_keysign": keysign,
        "client_username": configuration.here.user,
        "gss_host": configuration.hostname if configuration.is_on("gssapiauthentication") else None,
        "preferred_auth": configuration.names("preferredauthentications"),
        "env": None,
        "send_env": None,
        "agent_forwarding": False,
        "x11_forwarding": False,
        "compression_algs": ["none"],
        "login_timeout": 0,
        "connect_timeout": None,
        "kex_algs": allowed("KexAlgorithms", get_kex_algs()),
        "encryption_algs": ciphers,
        "mac_algs": allowed("MACs", get_mac_algs()),
        "server_host_key_algs": allowed("HostKeyAlgorithms", kinds, host_keys),
        "signature_algs": allowed("PubkeyAcceptedAlgorithms", get_public_key_algs()),
    }
