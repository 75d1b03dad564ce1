"""The channel to one agent, over any stream that carries the bytes of its relay.

What a login shell prints before the stream's marker is skipped. `LocalStream` is the relay as
a child of this process; the one over SSH is in `ssh/connection.py`.
"""

import os
import subprocess
from collections.abc import Mapping, Sequence
from typing import Protocol

from gputui.process.child import Child
from gputui.protocol.agent import FromAgent, ToAgent
from gputui.protocol.streams import ByteStream, SocketStream
from gputui.protocol.typed_codec import TypedChannel

READ_BYTES = 2**16
STDERR_LINES = 20
EXIT_S = 1.0
"""How long a command whose stream ended may take to end, too."""
MESSAGES_PER_S = 5_000
BYTES_PER_S = 2**22
"""No agent is read faster: telemetry, and four sendings of log lines a second of each worker."""


class CommandStream(ByteStream, Protocol):
    """A command's stdin and stdout, and what it wrote on stderr."""

    @property
    def stderr_tail(self) -> tuple[str, ...]:
        """The last lines of stderr."""

    async def exit_status(self) -> int | None:
        """Return how the command on the other end ended; None where that is not known."""


class AgentChannel(TypedChannel[ToAgent, FromAgent]):
    """Messages to and from one agent."""

    stream: CommandStream

    def __init__(self, stream: CommandStream) -> None:
        super().__init__(stream, FromAgent, lines_per_s=MESSAGES_PER_S, bytes_per_s=BYTES_PER_S)

    @property
    def last_log_lines(self) -> tuple[str, ...]:
        """The last lines that the other end printed in place of messages."""
        return (*self.banner, *self.stream.stderr_tail)[-STDERR_LINES:]


class LocalStream:
    """The stdin and stdout of a command on this machine, in a session of its own.

    Ctrl-C in the terminal does not reach it.
    """

    def __init__(self, child: Child, pipes: SocketStream) -> None:
        self._child = child
        self._pipes = pipes
        self.read = pipes.read
        self.write = pipes.write
        self.drain = pipes.drain
        self.abort = pipes.abort

    @classmethod
    async def start(cls, command: Sequence[str], env: Mapping[str, str]) -> "LocalStream":
        """Start the command; raises OSError when it cannot be."""
        child = Child(
            command,
            env={**os.environ, **env},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            own_session=True,
        )
        return cls(child, await child.stream())

    @property
    def stderr_tail(self) -> tuple[str, ...]:
        """The last lines of stderr."""
        return self._child.last_log_lines

    async def exit_status(self) -> int | None:
        """Return the exit status once it has ended; None if it goes on for a second."""
        return await self._child.wait(EXIT_S)

    async def close(self) -> None:
        """Close stdin, which ends a relay; kill it if it stays."""
        await self._pipes.close()
        await self._child.end(EXIT_S, ask=None)
