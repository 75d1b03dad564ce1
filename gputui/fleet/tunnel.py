"""The ways of a host's workers through the SSH connection to it, where no other is open.

They lead from loopback to loopback, by the same port numbers, so that an address of a worker means
the same on all machines:

    here 127.0.0.1:p ──SSH──▶ 127.0.0.1:p there, where a worker listens
    127.0.0.1:any there ──SSH──▶ the scheduler here
    127.0.0.1:q there ──SSH──▶ 127.0.0.1:q here ──SSH──▶ a worker of another such host

TLS is between the two ends, as elsewhere: Dask checks who signed a certificate, not its name.
"""

import asyncio
import random
import socket
from contextlib import ExitStack, closing, suppress

from gputui.fleet.addresses import LOOPBACK
from gputui.fleet.session import AgentSession, Forwarding
from gputui.protocol.agent import Listen, Listening, Reach, Reached

FIRST, LAST = 10_000, 32_000
"""The ports that are chosen from: the kernel gives connections others. Source: ip(7)."""
AT_LEAST = 16
TRIES = 100
ANSWER_S = 4.0


def free_ports(count: int) -> tuple[int, int]:
    """Return the first and the last of so many ports in a row that nothing here has.

    Raises OSError.
    """
    for _ in range(TRIES):
        first = random.randrange(FIRST, LAST - count)
        with suppress(OSError), ExitStack() as servers:
            for number in range(first, first + count):
                servers.enter_context(socket.create_server((LOOPBACK, number)))
            return first, first + count - 1
    raise OSError(f"{count} ports in a row are not free here")


class Tunnel:
    """The ways of one host, over one connection after another; this machine itself needs none."""

    def __init__(self, why: str, ports: tuple[int, ...]) -> None:
        """Lead to workers that listen on these ports, from the first to the last."""
        self.why, self.ports = why, ports
        self.numbers = range(ports[0], ports[1] + 1)
        self.scheduler_port = 0
        """Where the scheduler is on the host's loopback."""
        self._connection: Forwarding | None = None
        self._back: set[int] = set()

    async def open(self, session: AgentSession, scheduler_port: int) -> None:
        """Open the ways between this machine and the host, and try them; raises OSError."""
        self._connection = connection = session.connection
        self._back = set()
        self.scheduler_port = scheduler_port
        if connection is not None:
            self.scheduler_port = await connection.forward_back(scheduler_port)
            await connection.forward_same(self.numbers, back=False)
        opened: Listening = await session.ask(Listen(0, LOOPBACK, self.ports))
        reached: Reached = await session.ask(Reach(0, LOOPBACK, self.scheduler_port, ANSWER_S))
        if problem := opened.error or reached.error:
            raise OSError(problem)
        if not await _answers(opened.port):
            raise OSError(f"nothing comes through port {opened.port}")

    async def lead_to(self, other: "Tunnel") -> None:
        """Open the ways from the host to the workers of another; raises OSError.

        Where its connection is lost, they are opened over the next one.
        """
        connection, new = self._connection, {*other.numbers} - self._back
        self._back |= new
        if connection is None or not new:
            return
        try:
            await connection.forward_same(new, back=True)
        except OSError:
            if not connection.is_lost:
                raise


async def _answers(port: int) -> bool:
    """Return whether an agent answers at a port of the loopback address here."""
    with suppress(OSError):
        async with asyncio.timeout(ANSWER_S):
            reader, writer = await asyncio.open_connection(LOOPBACK, port)
            with closing(writer):
                return bool(await reader.read(1))
    return False
