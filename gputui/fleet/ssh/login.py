"""The client's side of one handshake: which host key is taken, which keys and passwords offered."""

import contextlib
from collections.abc import Sequence

import asyncssh

from gputui.fleet.ssh.configuration import Authentication
from gputui.fleet.ssh.host_keys import HostKeys, KeyVerdict
from gputui.fleet.ssh.identities import Identities
from gputui.fleet.stages import Question, Stages


class Login(asyncssh.SSHClient):
    """Answers asyncssh's questions during a handshake, asking the user where necessary."""

    def __init__(
        self,
        name: str,
        how: Authentication,
        keys: HostKeys,
        identities: Identities,
        stages: Stages,
    ) -> None:
        self.name = name
        """`user@host`, for questions."""
        self.keys = keys
        self.passwords = not keys.overlooked
        """Whether a password may be sent: never to a host whose key has changed."""
        self._how = how
        self._identities = identities
        self._stages = stages
        self._tries = 0
        self._answered: set[str] = set()
        """The questions that were answered: one that comes again was answered wrong."""
        self._agent = asyncssh.SSHAgentClient(how.agent) if how.agent else None
        self._offered = False
        self._connection: asyncssh.SSHClientConnection | None = None

    @property
    def heard_version(self) -> bool:
        """Whether the server has sent its SSH version."""
        connection = self._connection
        return connection is not None and bool(connection.get_extra_info("server_version"))

    def connection_made(self, conn: asyncssh.SSHClientConnection) -> None:
        """Keep the connection, and what the server will show.

        asyncssh 2.24 says of a certificate only who signed it.
        """
        self._connection = conn
        validate = conn.validate_server_host_key

        def shown(data: bytes) -> asyncssh.SSHKey:
            self.keys.shown = data
            return validate(data)

        conn.validate_server_host_key = shown  # type: ignore[method-assign, assignment]

    def validate_host_public_key(
        self, host: str, addr: str, port: int, key: asyncssh.SSHKey
    ) -> bool:
        """Return whether a plain host key is known."""
        self._stages.progress()
        return self.keys.judge(key) is KeyVerdict.KNOWN

    def validate_host_ca_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:
        """Return whether the authority that signed a host's certificate is known."""
        self._stages.progress()
        return self.keys.judge_authority(key) is KeyVerdict.KNOWN

    def begin_auth(self, username: str) -> None:
        """Take note that the key exchange is over."""
        self._stages.progress()

    async def public_key_auth_requested(self) -> list[asyncssh.SSHKeyPair] | None:
        """Return all keys the first time it is called."""
        self._stages.progress()
        if self._offered:
            return None
        self._offered = True
        return await self._identities.keys(self._how, self._agent, self._stages) or None

    async def password_auth_requested(self) -> str | None:
        """Ask the user for the password."""
        return await self._password(f"Password of {self.name}")

    async def kbdint_auth_requested(self) -> str | None:
        """Accept keyboard-interactive questions."""
        self._stages.progress()
        return "" if self.passwords and self._how.prompts else None

    async def kbdint_challenge_received(
        self, name: str, instructions: str, lang: str, prompts: Sequence[tuple[str, bool]]
    ) -> list[str] | None:
        """Pass the server's questions on to the user, with the host's name before each."""
        answers = []
        for prompt, echo in prompts:
            answer = await self._password(f"{self.name}: {prompt.strip()}", secret=not echo)
            if answer is None:
                return None
            answers.append(answer)
        return answers

    async def close(self) -> None:
        """Close the connection to ssh-agent."""
        if self._agent:
            self._agent.close()
            with contextlib.suppress(OSError):
                await self._agent.wait_closed()

    async def _password(self, text: str, *, secret: bool = True) -> str | None:
        self._stages.progress()
        self._tries += 1
        if not self.passwords or self._tries > self._how.prompts:
            return None
        again = "Wrong. " if text in self._answered else ""
        self._answered.add(text)
        answer = await self._stages.ask(Question("password", f"{again}{text}", secret))
        if answer is None:
            self._tries = self._how.prompts
        return answer
