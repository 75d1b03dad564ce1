"""Choose where each host's workers listen: never on loopback if other machines are there.

The far end of a host's SSH connection is where others reach it. A host that is this machine is
reached where any other machine reaches it: at this end of the connection to that one.
"""

import asyncio
import contextlib
import ipaddress
import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache

LOOPBACK = "127.0.0.1"
PATIENCE_S = 5.0
"""How long a host that is this machine waits to learn how the others reach it: longer than a slow
login takes, for what it then guesses may be where the others cannot reach it."""


@dataclass(frozen=True, slots=True)
class HostAddress:
    """The addresses of a host's connection, "" as long as they are not known."""

    name: str
    local_address: str
    """Where the host reaches this machine."""
    far_address: str
    """Where others reach the host."""
    given_up: bool = False
    """Whether it failed, and so has no part in the cluster."""


def listen_addresses(
    host_addresses: Iterable[HostAddress], own_address: str = ""
) -> dict[str, str]:
    """Return host → the address its workers listen on; a host that must wait is left out.

    An IPv6 address is in brackets, as Dask wants it.
    `own_address` is where other machines reach this one, where that is known from elsewhere.

    >>> remote = HostAddress("a", "10.0.0.1", "10.0.0.7")
    >>> local = HostAddress("localhost", "127.0.0.1", "127.0.0.1")
    >>> listen_addresses([local, remote])
    {'localhost': '10.0.0.1', 'a': '10.0.0.7'}
    >>> listen_addresses([local, HostAddress("a", "", "")])
    {}
    >>> listen_addresses([HostAddress("b", "fd00::1", "fd00::7")])
    {'b': '[fd00::7]'}
    """
    host_addresses = [each for each in host_addresses if not each.given_up]
    known = [each for each in host_addresses if each.far_address]
    remote = [each for each in known if not is_loopback(each.far_address)]
    here = LOOPBACK
    if remote or len(known) < len(host_addresses):
        here = own_address or (remote[0].local_address if remote else "")
    found = {}
    for each in known:
        if not is_loopback(each.far_address):
            found[each.name] = each.far_address
        elif here:
            found[each.name] = each.far_address if here == LOOPBACK else here
    return {name: bracketed(address) for name, address in found.items()}


def same_family(one: str, other: str) -> bool:
    """Return whether two addresses are of one version of IP.

    >>> same_family("10.0.0.7", "10.0.0.8"), same_family("10.0.0.7", "[fd00::7]")
    (True, False)
    """
    return (":" in one) == (":" in other)


def bracketed(address: str) -> str:
    """Return an address as it stands before a port.

    >>> bracketed("fd00::7"), bracketed("10.0.0.7"), bracketed("[::1]")
    ('[fd00::7]', '10.0.0.7', '[::1]')
    """
    return f"[{address}]" if ":" in address and not address.startswith("[") else address


class ListenAddresses:
    """The choice as hosts come up: a host that must wait for others does so for a bounded time."""

    def __init__(self, own_address: str, out_of_patience: Callable[[], None]) -> None:
        self._own_address = own_address
        self._out_of_patience = out_of_patience
        self._waiting_since: float | None = None

    def own_address(self, end: str) -> str:
        """Return where workers of this machine listen, for other machines.

        That is where some listen already, or the `end` of the first connection for which this is
        called, and stays so.
        """
        self._own_address = self._own_address or end
        return self._own_address

    def addresses(self, host_addresses: Iterable[HostAddress]) -> dict[str, str]:
        """Return host → the address its workers listen on; a host that must wait is left out.

        After `PATIENCE_S` such a host takes this machine's address on its default route.
        """
        host_addresses = [each for each in host_addresses if not each.given_up]
        found = self._found(host_addresses)
        for each in host_addresses:
            given = found.get(each.name, LOOPBACK).strip("[]")
            if is_loopback(each.far_address) and not is_loopback(given):
                self._own_address = given
        return found

    def _found(self, host_addresses: list[HostAddress]) -> dict[str, str]:
        found = listen_addresses(host_addresses, self._own_address)
        if len(found) == sum(bool(each.far_address) for each in host_addresses):
            return found
        loop = asyncio.get_running_loop()
        if self._waiting_since is None:
            self._waiting_since = loop.time()
            loop.call_later(PATIENCE_S, self._out_of_patience)
        if loop.time() - self._waiting_since >= PATIENCE_S:
            return listen_addresses(host_addresses, outward_address())
        return found


@cache
def is_loopback(address: str) -> bool:
    """Return whether an address is one of this machine to itself."""
    try:
        return ipaddress.ip_address(address.partition("%")[0]).is_loopback
    except ValueError:
        return address == "localhost"


def is_of_a_host(address: str) -> bool:
    """Return whether an address is one that other machines may reach a host at.

    >>> [is_of_a_host(each) for each in ("10.0.0.7", "fd00::7", "::1", "fe80::7%eth0", "", "gpu-a")]
    [True, True, False, False, False, False]
    """
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    return not (
        found.is_loopback or found.is_link_local or found.is_unspecified or found.is_multicast
    )


def is_link_local(address: str) -> bool:
    """Return whether an address is good on one wire only, and needs its zone everywhere."""
    try:
        return ipaddress.ip_address(address.partition("%")[0]).is_link_local
    except ValueError:
        return False


def own_end(seen: str) -> str:
    """Return where a host behind a proxy reaches this machine.

    That is what the host sees as the other end, where it is an address of this machine.
    """
    import psutil

    ends = (
        end.address.partition("%")[0] for ends in psutil.net_if_addrs().values() for end in ends
    )
    return seen if seen in ends else outward_address()


def outward_address() -> str:
    """Return the address of this machine on its default route, loopback without one.

    Nothing is sent: a datagram socket only looks up its route. Source: udp(7), connect.
    """
    for family, somewhere in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
        with (
            contextlib.suppress(OSError),
            socket.socket(family, socket.SOCK_DGRAM) as probe,
        ):
            probe.connect((somewhere, 9))
            return str(probe.getsockname()[0])
    return LOOPBACK
