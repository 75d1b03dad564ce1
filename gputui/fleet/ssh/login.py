"""The client's side of one handshake: which host key is taken, which keys and passwords offered."""

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import asyncssh
from asyncssh.encryption import get_encryption_algs
from asyncssh.kex import get_kex_algs
from asyncssh.mac import get_mac_algs
from asyncssh.public_key import get_certificate_algs, get_public_key_algs

from gputui.errors import HostError
from gputui.fleet.ssh.configuration import SshConfiguration
from gputui.fleet.ssh.host_keys import HostKeys, Shown
from gputui.fleet.ssh.identities import Identities
from gputui.fleet.ssh.sockets import Proxy
from gputui.fleet.stages import PATIENT, Question, Stages


class Login(asyncssh.SSHClient):
    """Answers asyncssh's questions during a handshake, asking the user where necessary."""

    def __init__(
        self,
        configuration: SshConfiguration,
        identities: Identities,
        stages: Stages,
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
        connection = self._connection
        return connection is not None and bool(connection.get_extra_info("server_version"))

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
        if self.shown is None:
            self.shown = Shown.of(key_data)
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


def options_for(
    login: Login, host_keys: Sequence[str], sock: socket.socket | None
) -> dict[str, Any]:
    """Return asyncssh's options, all of them, so that it reads nothing by itself.

    They allow nothing that ssh itself would refuse. Raises ValueError, by name, where no allowed
    algorithm is available.
    """
    configuration = login.configuration

    def allowed(option: str, had: Callable[[], Iterable[bytes]]) -> Sequence[str]:
        return _allowed(option, configuration.names(option.lower()), had)

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
        "host_based_auth": False,
        "gss_host": configuration.hostname if configuration.is_on("gssapiauthentication") else None,
        "preferred_auth": configuration.names("preferredauthentications"),
        "env": None,
        "send_env": None,
        "agent_forwarding": False,
        "x11_forwarding": False,
        "compression_algs": ["none"],
        "login_timeout": 0,
        "connect_timeout": None,
        "kex_algs": allowed("KexAlgorithms", get_kex_algs),
        "encryption_algs": quick(allowed("Ciphers", get_encryption_algs)),
        "mac_algs": allowed("MACs", get_mac_algs),
        "server_host_key_algs": _allowed(
            "HostKeyAlgorithms",
            host_keys,
            lambda: [*get_public_key_algs(), *get_certificate_algs()],
        ),
        "signature_algs": allowed("PubkeyAcceptedAlgorithms", get_public_key_algs),
    }


def _allowed(
    option: str, allowed: Sequence[str], had: Callable[[], Iterable[bytes]]
) -> Sequence[str]:
    """Return the allowed algorithms that asyncssh has, too; raises ValueError, by name, for none.

    () leaves the choice to asyncssh.
    """
    ours = {name.decode() for name in had()}
    both = [name for name in allowed if name in ours]
    if allowed and not both:
        raise ValueError(f"{option} allows only {','.join(allowed)}, which gputui does not have")
    return both or ()


def quick(ciphers: Sequence[str]) -> Sequence[str]:
    """Return ciphers in the order to offer them: AES-GCM before ChaCha20, which is ssh's first.

    asyncssh takes 7 µs for a packet of the one, and 47 µs for one of the other.

    >>> quick(["chacha20-poly1305@openssh.com", "aes128-ctr", "aes256-gcm@openssh.com"])[0]
    'aes256-gcm@openssh.com'
    """
    if not ciphers or not ciphers[0].startswith("chacha20"):
        return ciphers
    return sorted(ciphers, key=lambda name: "-gcm" not in name)
