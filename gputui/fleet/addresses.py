"""Where the workers of each host listen: never on loopback where another machine must reach them.

The far end of a host's SSH connection is where others reach it. A host that is this machine is
reached where any other machine reaches it: at this end of the connection to that one.
"""

import asyncio
import ipaddress
import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass

LOOPBACK = "127.0.0.1"
PATIENCE_S = 2.0
"""How long a host that is this machine waits to learn how the others reach it."""


@dataclass(frozen=True, slots=True)
class Way:
    """The addresses of a host's connection, "" as long as they are not known."""

    name: str
    local_address: str
    """Where the host reaches this machine."""
    far_address: str
    """Where others reach the host."""
    given_up: bool = False
    """Whether it is refused, and so has no part in the cluster."""


def listen_addresses(ways: Iterable[Way], own_address: str = "") -> dict[str, str]:
    """Return host → the address its workers listen on; a host that must wait is left out.

    `own_address` is where other machines reach this one, where that is known from elsewhere.

    >>> remote = Way("a", "10.0.0.1", "10.0.0.7")
    >>> listen_addresses([Way("localhost", "127.0.0.1", "127.0.0.1"), remote])
    {'localhost': '10.0.0.1', 'a': '10.0.0.7'}
    >>> listen_addresses([Way("localhost", "127.0.0.1", "127.0.0.1"), Way("a", "", "")])
    {}
    """
    ways = [way for way in ways if not way.given_up]
    known = [way for way in ways if way.far_address]
    remote = [way for way in known if not is_loopback(way.far_address)]
    here = LOOPBACK
    if remote or len(known) < len(ways):
        here = own_address or (remote[0].local_address if remote else "")
    found = {}
    for way in known:
        if not is_loopback(way.far_address):
            found[way.name] = way.far_address
        elif here:
            found[way.name] = way.far_address if here == LOOPBACK else here
    return found


class Listening:
    """Where workers listen, with patience: a host that must wait does so for a bounded time."""

    def __init__(self, own_address: str, out_of_patience: Callable[[], None]) -> None:
        self._own_address = own_address
        self._out_of_patience = out_of_patience
        self._waiting_since: float | None = None

    def addresses(self, ways: Iterable[Way]) -> dict[str, str]:
        """Return host → the address its workers listen on; a host that must wait is left out.

        After `PATIENCE_S` such a host takes this machine's address on its default route.
        """
        ways = [way for way in ways if not way.given_up]
        found = listen_addresses(ways, self._own_address)
        if len(found) == sum(bool(way.far_address) for way in ways):
            return found
        loop = asyncio.get_running_loop()
        if self._waiting_since is None:
            self._waiting_since = loop.time()
            loop.call_later(PATIENCE_S, self._out_of_patience)
        if loop.time() - self._waiting_since >= PATIENCE_S:
            return listen_addresses(ways, outward_address())
        return found


def is_loopback(address: str) -> bool:
    """Return whether an address is one of this machine to itself."""
    try:
        return ipaddress.ip_address(address.partition("%")[0]).is_loopback
    except ValueError:
        return address == "localhost"


def outward_address() -> str:
    """Return the address of this machine on its default route, loopback without one.

    Nothing is sent: a datagram socket only looks up its route. Source: udp(7), connect.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return LOOPBACK
        return str(probe.getsockname()[0])
