"""The agent's side of its forkserver: start it, send it orders, read its reports, restart it.

The forkserver gets a list of what to remove should the agent be killed. One that ends before it was
ready cannot import what workers need; after a few tries it is given up, with what it said.
"""

import asyncio
import contextlib
import os
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from gputui.agent.agent_socket import AgentSocket, own_command
from gputui.errors import ProtocolError
from gputui.process.background import words
from gputui.process.child import Child
from gputui.protocol.forking import FromForkserver, Imported, ToForkserver
from gputui.protocol.packets import PacketChannel, packet_sockets

TRIES = 3
"""Starts in a row that may fail before the forkserver is given up."""
BACKOFF_S = 1.0
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


class ForkserverProcess:
    """The forkserver of one agent, over all its restarts."""

    def __init__(
        self,
        environ: Mapping[str, str],
        scratch: Path,
        agent_socket: AgentSocket,
        *,
        heard: Callable[[FromForkserver, list[int]], None],
        lost: Callable[[str, bool], Awaitable[None]],
    ) -> None:
        """Call `heard` with each message and the descriptors that came with it.

        `lost` is called with how it ended and whether it is given up.
        """
        self._environ = {**WORKER_ENVIRONMENT, **environ}
        self._handed = (str(scratch), str(agent_socket.path))
        self._heard = heard
        self._lost = lost
        self._child: Child | None = None
        self._channel: AgentPackets | None = None
        self._wanted = asyncio.Event()
        self._failures = 0
        self.ready = False
        """Whether it has imported what workers need, and takes orders."""

    def start(self) -> None:
        """Have `run` start it, if it does not run and is not about to."""
        self._wanted.set()

    async def run(self) -> None:
        """Keep it running from the first `start` on; belongs to the agent as long as that lives."""
        while True:
            await self._wanted.wait()
            reason = await self._live()
            self._failures += 1
            given_up = self._failures >= TRIES
            if given_up:
                self._failures = 0
                self._wanted.clear()
            await self._lost(reason, given_up)
            if not given_up:
                await asyncio.sleep(BACKOFF_S * (self._failures - 1))

    def order(self, order: ToForkserver, descriptors: Sequence[int] = ()) -> None:
        """Give an order, with copies of descriptors; lost with a forkserver that just ended."""
        if self._channel is not None:
            self._channel.send(order, descriptors)

    async def close(self) -> None:
        """Have it end all workers and itself."""
        self._hang_up()
        if self._child is not None:
            await self._child.end(CLOSING_S, ask=None)

    async def _live(self) -> str:
        """Start it, and return how it ended once it has."""
        ours, theirs = packet_sockets()
        try:
            self._child = Child(
                [*own_command(), "forkserver", str(theirs.fileno()), *self._handed],
                env=self._environ,
                pass_fds=(theirs.fileno(),),
            )
        except OSError as error:
            ours.close()
            return words(error)
        finally:
            theirs.close()
        ours.setblocking(False)
        channel = PacketChannel[ToForkserver, FromForkserver](ours, FromForkserver)
        self._channel = AgentPackets(channel, self._take, self._hang_up)
        await self._child.wait()
        self._hang_up()
        said = " ".join(line.strip() for line in self._child.last_log_lines[-LAST_LINES:])
        return said or self._child.reason

    def _take(self, message: FromForkserver, descriptors: list[int]) -> None:
        if isinstance(message, Imported):
            self._failures, self.ready = 0, True
        self._heard(message, descriptors)

    def _hang_up(self) -> None:
        """Close its channel, at which it ends."""
        self.ready = False
        if self._channel is not None:
            self._channel.close()
            self._channel = None


class AgentPackets:
    """The agent's end of the channel to a forkserver: in its loop, and never waiting."""

    def __init__(
        self,
        channel: PacketChannel[ToForkserver, FromForkserver],
        take: Callable[[FromForkserver, list[int]], None],
        ended: Callable[[], None],
    ) -> None:
        """Call `take` with each message and its descriptors, and `ended` when there are no more."""
        self._channel = channel
        self._take = take
        self._ended = ended
        self._waiting: deque[tuple[ToForkserver, list[int]]] = deque()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(channel.fileno(), self._read)

    def send(self, message: ToForkserver, descriptors: Sequence[int]) -> None:
        """Send a message with copies of descriptors, as soon as there is room for it."""
        self._waiting.append((message, [os.dup(descriptor) for descriptor in descriptors]))
        self._write()

    def close(self) -> None:
        """Close the channel; what waits is dropped."""
        self._loop.remove_reader(self._channel.fileno())
        self._loop.remove_writer(self._channel.fileno())
        self._channel.close()
        while self._waiting:
            self._sent()

    def _write(self) -> None:
        """Send what waits, as far as there is room."""
        self._loop.remove_writer(self._channel.fileno())
        while self._waiting:
            try:
                self._channel.send(*self._waiting[0])
            except BlockingIOError:
                self._loop.add_writer(self._channel.fileno(), self._write)
                return
            except OSError:
                pass  # it just ended, and is started again
            self._sent()

    def _sent(self) -> None:
        for descriptor in self._waiting.popleft()[1]:
            os.close(descriptor)

    def _read(self) -> None:
        with contextlib.suppress(BlockingIOError):
            try:
                received = self._channel.receive()
            except ProtocolError:
                received = None
            if received is None:
                self._ended()
            else:
                self._take(*received)
