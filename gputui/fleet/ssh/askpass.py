"""Questions of an ssh that a ProxyCommand runs: it has no terminal, so the user is asked here."""

import asyncio
import contextlib
import os
import shlex
import sys
import tempfile
from pathlib import Path
from typing import Self

from gputui.fleet.stages import Question, Stages

QUESTION_BYTES = 10_000
CLIENT = """
import socket, sys
own = socket.socket(socket.AF_UNIX)
own.connect(sys.argv[1])
own.sendall(sys.argv[2].encode("utf-8", "surrogateescape"))
own.shutdown(socket.SHUT_WR)
answer = b"".join(iter(lambda: own.recv(4096), b""))
sys.stdout.buffer.write(answer)
sys.exit(not answer)
"""


class Askpass:
    """A program for SSH_ASKPASS, and the socket at which it passes questions on."""

    def __init__(self, stages: Stages) -> None:
        self._stages = stages
        self._folder = tempfile.TemporaryDirectory(prefix="gputui-askpass-")

    async def start(self) -> Self:
        """Make the program, and listen for it."""
        program, path = self._program, f"{self._folder.name}/socket"
        client = shlex.join([sys.executable, "-IS", "-c", CLIENT, path])
        program.write_text(f'#!/bin/sh\nexec {client} "$1"\n')
        program.chmod(0o700)
        self._server = await asyncio.start_unix_server(self._pass_on, path)
        return self

    @property
    def environment(self) -> dict[str, str]:
        """The variables that have an ssh ask the program."""
        return {
            "SSH_ASKPASS": str(self._program),
            "SSH_ASKPASS_REQUIRE": "force",
            "DISPLAY": os.environ.get("DISPLAY", "none"),
        }

    def close(self) -> None:
        """Remove the program, and listen no longer."""
        self._server.close()
        self._folder.cleanup()

    @property
    def _program(self) -> Path:
        return Path(self._folder.name, "askpass")

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Ask the user and send the answer, if any."""
        with contextlib.closing(writer), contextlib.suppress(OSError):
            text = (await reader.read(QUESTION_BYTES)).decode("utf-8", "replace").strip()
            answer = await self._stages.ask(question(text))
            if answer is not None:
                writer.write(f"{answer}\n".encode())
                await writer.drain()


def question(text: str) -> Question:
    """Return a prompt of ssh's as a question.

    >>> question("Enter passphrase for key '/k': ").kind, question("me@a's password:").secret
    ('passphrase', True)
    """
    if "continue connecting" in text:
        return Question("host-key", text, False)
    return Question("passphrase" if "passphrase" in text else "password", text, True)
