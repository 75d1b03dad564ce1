"""The agent's side of its forkserver: start it, send it orders, read its reports, restart it.

The forkserver gets a list of what to remove should the agent be killed. One that ends before it was
ready cannot import what workers need: it is given up, with what it said, until a worker is started.
"""

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from gputui.agent.agent_socket import AgentSocket, own_command
from gputui.errors import ProtocolError
from gputui.process.background import words
from gputui.process.child import Child
from gputui.protocol.channel import Channel
from gputui.protocol.forking import FromForkserver, Imported, ToForkserver
from gputui.protocol.streams import SocketStream

CLOSING_S = 2.0
LAST_LINES = 3

WORKER_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MALLOC_TRIM_THRESHOLD_": "65536",
}
"""What must be there before NumPy and the loader read it, unless the host's `env.X=` says else.

Source: `distributed.nanny.pre-spawn-environ`.
"""


ForkserverChannel = Channel[ToForkserver, FromForkserver]


class ForkserverProcess:
    """The forkserver of one agent, over all its restarts."""

    def __init__(
        self,
        environ: Mapping[str, str],
        scratch: Path,
        agent_socket: AgentSocket,
        *,
        heard: Callable[[FromForkserver], None],
        lost: Callable[[str, bool], Awaitable[None]],
    ) -> None:
        """Call `heard` with each message.

        `lost` is called with how it ended and whether it is given up.
        """
        self._environ = {**WORKER_ENVIRONMENT, **environ}
        self._handed = (str(scratch), str(agent_socket.path))
        self._heard = heard
        self._lost = lost
        self._child: Child | None = None
        self._channel: ForkserverChannel | None = None
        self._desired = asyncio.Event()
        self.ready = False
        """Whether it has imported what workers need, and takes orders."""

    def start(self) -> None:
        """Have `run` start it, if it does not run and is not about to."""
        self._desired.set()

    async def run(self) -> None:
        """Keep it running from the first `start` on; belongs to the agent as long as that lives."""
        while True:
            await self._desired.wait()
            reason, was_ready = await self._live()
            if not was_ready:
                self._desired.clear()
            await self._lost(reason, not was_ready)

    def order(self, order: ToForkserver) -> None:
        """Give an order; lost with a forkserver that just ended."""
        if self._channel is not None:
            self._channel.send(order)

    async def close(self) -> None:
        """Have it end all workers and itself: it does when its channel is closed."""
        await self._hang_up()
        if self._child is not None:
            await self._child.end(CLOSING_S, ask=None)

    async def _live(self) -> tuple[str, bool]:
        """Start it; return how it ended once it has, and whether it was ready before."""
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                self._child = Child(
                    [*own_command(), "forkserver", str(theirs.fileno()), *self._handed],
                    env=self._environ,
                    pass_fds=(theirs.fileno(),),
                )
            except OSError as error:
                ours.close()
                return words(error), False
        stream = SocketStream(*await asyncio.open_unix_connection(sock=ours))
        self._channel = ForkserverChannel(stream, FromForkserver)
        with contextlib.suppress(ProtocolError):
            async for message in self._channel:
                self.ready = self.ready or isinstance(message, Imported)
                self._heard(message)
        was_ready = self.ready
        await self._hang_up()
        await self._child.wait()
        lines = [line.strip() for line in self._child.last_log_lines]
        fatal = [line for line in lines if line.startswith("Fatal Python error")]
        return " ".join(fatal or lines[-LAST_LINES:]) or self._child.reason, was_ready

    async def _hang_up(self) -> None:
        self.ready = False
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.abort()
            await channel.close()
