"""Addresses of hosts, and of this machine as other machines reach it."""

import contextlib
import ipaddress
import socket
from functools import cache

LOOPBACK = "127.0.0.1"


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
