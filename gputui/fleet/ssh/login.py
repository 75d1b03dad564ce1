"""What a login may need of a person: passwords, and the passphrases of keys."""

import asyncio
from collections.abc import Sequence

import asyncssh

from gputui.fleet.ssh.host_keys import HostKeys
from gputui.fleet.stages import Question, Stages

PASSWORD_TRIES = 3


class Passphrases:
    """Passphrases of key files, each asked for once however many hosts want it."""

    def __init__(self) -> None:
        self._asked: dict[str, asyncio.Task[str | None]] = {}

    async def get(self, filename: str, stages: Stages) -> str | None:
        """Return the passphrase of a key file; None where nobody gave it."""
        if filename not in self._asked:
            question = Question("passphrase", f"Passphrase of the key {filename}", True)
            self._asked[filename] = asyncio.create_task(stages.ask(question))
        with stages.pause():
            return await asyncio.shield(self._asked[filename])

    def forget(self) -> None:
        """Ask anew the next time: one was wrong."""
        self._asked.clear()


class Login(asyncssh.SSHClient):
    """Answers asyncssh's questions during a handshake, asking a person where only one can."""

    def __init__(self, stages: Stages, passphrases: Passphrases) -> None:
        self._stages = stages
        self._passphrases = passphrases
        self.keys: HostKeys | None = None
        self.opened: set[str] = set()
        """Key files that a person gave a passphrase for."""
        self._tries = 0

    def begin(self) -> None:
        """Start anew with another connection."""
        self._tries = 0

    def validate_host_public_key(
        self, host: str, addr: str, port: int, key: asyncssh.SSHKey
    ) -> bool:
        """Note a key that known_hosts does not have; a person is asked afterwards."""
        assert self.keys
        self.keys.offered = key
        return False

    async def passphrase(self, filename: str) -> str | None:
        answer = await self._passphrases.get(filename, self._stages)
        if answer is not None:
            self.opened.add(filename)
        return answer

    async def password_auth_requested(self) -> str | None:
        return await self._password(f"Password of {self._stages.host}")

    async def kbdint_auth_requested(self) -> str | None:
        return ""

    async def kbdint_challenge_received(
        self, name: str, instructions: str, lang: str, prompts: Sequence[tuple[str, bool]]
    ) -> list[str] | None:
        answers = []
        for prompt, echo in prompts:
            answer = await self._password(f"{self._stages.host}: {prompt.strip()}", secret=not echo)
            if answer is None:
                return None
            answers.append(answer)
        return answers

    async def _password(self, text: str, *, secret: bool = True) -> str | None:
        self._tries += 1
        if self._tries > PASSWORD_TRIES:
            return None
        answer = await self._stages.ask(Question("password", text, secret))
        if answer is None:
            self._tries = PASSWORD_TRIES
        return answer
