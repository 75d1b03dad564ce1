"""Open ports of this host for others to try, where its workers are to listen."""

import asyncio
import contextlib
import errno
import fcntl
import os
import socket
import struct

from gputui.model.hosts import is_ip
from gputui.protocol.agent import Listen, Listening

SIOCGIFADDR = 0x8915
"""Source: netdevice(7)."""
LISTENING_S = 15.0
"""How long a port stays open that others are to try."""


Ports = tuple[str, tuple[int, ...]]
"""An address, and the first and the last of its ports to choose from."""


class OpenPorts:
    """Ports that are open for others to try: one for all who ask for the same."""

    def __init__(self) -> None:
        self._servers: dict[Ports, asyncio.Server] = {}
        self._timers: dict[Ports, asyncio.TimerHandle] = {}
        self._opening = asyncio.Lock()

    async def open(self, order: Listen) -> Listening:
        """Open a port for a while, and return which."""
        async with self._opening:
            try:
                ports = (_resolved(order.host), order.ports)
                server = self._servers.get(ports) or await _listen(*ports)
            except OSError as problem:
                error = os.strerror(problem.errno) if problem.errno else str(problem)
                return Listening(order.request, 0, error)
            if timer := self._timers.pop(ports, None):
                timer.cancel()
            self._servers[ports] = server
            self._timers[ports] = asyncio.get_running_loop().call_later(
                LISTENING_S, self._close, ports
            )
        address, port = server.sockets[0].getsockname()[:2]
        return Listening(order.request, port, address=address)

    def close(self) -> None:
        """Close all of them."""
        for ports in list(self._servers):
            self._timers[ports].cancel()
            self._close(ports)

    def _close(self, ports: Ports) -> None:
        del self._timers[ports]
        self._servers.pop(ports).close()


async def _listen(address: str, ports: tuple[int, ...]) -> asyncio.Server:
    """Listen on the last port that is free: workers take the first. Raises OSError."""
    first, last = ports or (0, 0)
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    for port in range(last, first - 1, -1):
        try:  # bound here: from Python 3.13 on asyncio does not say why it cannot be
            bound = socket.create_server((address, port), family=family)
            return await asyncio.start_server(_answer, sock=bound)
        except OSError as problem:
            if problem.errno != errno.EADDRINUSE:
                raise
    raise OSError(f"no port of {first}-{last} is free")


def _resolved(interface: str) -> str:
    """Return an interface's IPv4 address, or the address that was given.

    Raises OSError.
    """
    if is_ip(interface):
        return interface
    interfaces = [name for _, name in socket.if_nameindex()]
    if interface not in interfaces:
        raise OSError(f"it has no interface {interface}, but {', '.join(interfaces)}")
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        found = fcntl.ioctl(probe, SIOCGIFADDR, struct.pack("256s", interface.encode()))
        return socket.inet_ntoa(found[20:24])
    raise OSError(f"its interface {interface} has no IPv4 address: write listen=ADDRESS")


async def _answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"\n")  # a port that SSH forwards takes connections also where nothing listens
    writer.close()
