"""Choose where each host's workers listen: never on loopback if other machines are there.

The far end of a host's SSH connection is where others reach it. A host that is this machine is
reached where any other machine reaches it: at this end of the connection to that one.
"""

import contextlib
import ipaddress
import socket
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

LOOPBACK = "127.0.0.1"


class HostAddress(NamedTuple):
    """The addresses of a host's connection, "" as long as they are not known."""

    name: str
    local_address: str
    """Where the host reaches this machine."""
    far_address: str
    """Where others reach the host."""


def listen_addresses(hosts: Sequence[HostAddress], own_address: str = "") -> dict[str, str]:
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
    known = [each for each in hosts if each.far_address]
    remote = [each for each in known if not is_loopback(each.far_address)]
    here = LOOPBACK
    if remote or len(known) < len(hosts):
        here = own_address or (remote[0].local_address if remote else "")
    found = {}
    for each in known:
        local = is_loopback(each.far_address)
        if here or not local:
            address = here if local and here != LOOPBACK else each.far_address
            found[each.name] = bracketed(address)
    return found


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


@cache
def parsed(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return an address without its zone; None for a name."""
    try:
        return ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return None


@cache
def is_loopback(address: str) -> bool:
    """Return whether an address is one of this machine to itself."""
    found = parsed(address)
    return found.is_loopback if found else address == "localhost"


def is_link_local(address: str) -> bool:
    """Return whether an address is good on one wire only, and needs its zone everywhere."""
    found = parsed(address)
    return bool(found and found.is_link_local)


def is_of_a_host(address: str) -> bool:
    """Return whether an address is one that other machines may reach a host at.

    >>> [is_of_a_host(each) for each in ("10.0.0.7", "fd00::7", "::1", "fe80::7%eth0", "", "gpu-a")]
    [True, True, False, False, False, False]
    """
    found = parsed(address)
    return found is not None and not (
        found.is_loopback or found.is_link_local or found.is_unspecified or found.is_multicast
    )


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
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((somewhere, 9))
            return str(probe.getsockname()[0])
    return LOOPBACK
