"""A configuration → asyncssh's options: they allow nothing that ssh itself would refuse."""

import socket
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

from asyncssh.encryption import get_encryption_algs
from asyncssh.kex import get_kex_algs
from asyncssh.mac import get_mac_algs
from asyncssh.public_key import get_certificate_algs, get_public_key_algs

from gputui.fleet.ssh.configuration import Algorithms, SshConfiguration
from gputui.fleet.ssh.login import Login

GCM = ("aes128-gcm@openssh.com", "aes256-gcm@openssh.com")
BY_DEFAULT = frozenset(
    {"chacha20-poly1305@openssh.com", "aes128-ctr", "aes192-ctr", "aes256-ctr", *GCM}
)
"""The ciphers of OpenSSH since 6.7. Source: ssh_config(5)."""


def options_for(
    configuration: SshConfiguration,
    login: Login,
    host_keys: Sequence[str],
    sock: socket.socket | None,
) -> dict[str, Any]:
    """Return asyncssh's options, all of them, so that it reads nothing by itself.

    Raises ValueError, by name, where no allowed algorithm is available.
    """
    how = configuration.authentication
    return {
        "config": None,
        "host": configuration.hostname,
        "port": configuration.port,
        "sock": sock,
        "client_factory": lambda: login,
        "username": configuration.user,
        "known_hosts": lambda *_: ([], [], [], [], [], [], []),
        "client_keys": None,
        "public_key_auth": how.public_key,
        "password_auth": how.password,
        "kbdint_auth": how.keyboard_interactive,
        "host_based_auth": False,
        "gss_host": configuration.hostname if how.gssapi else None,
        "preferred_auth": how.preferred or (),
        "env": None,
        "send_env": None,
        "agent_forwarding": False,
        "x11_forwarding": False,
        "compression_algs": ["none"],
        "login_timeout": 0,
        "connect_timeout": None,
        **_algorithms(configuration.algorithms, host_keys),
    }


def _algorithms(allowed: Algorithms, host_keys: Sequence[str]) -> dict[str, Sequence[str]]:
    """Return asyncssh's options; raises ValueError, by name, where no allowed one is available."""
    chosen = {
        "kex_algs": _had("KexAlgorithms", allowed.kex, _names(get_kex_algs)),
        "encryption_algs": _had("Ciphers", preferred(allowed.ciphers), _names(get_encryption_algs)),
        "mac_algs": _had("MACs", allowed.macs, _names(get_mac_algs)),
        "server_host_key_algs": _had(
            "HostKeyAlgorithms",
            host_keys,
            _names(get_public_key_algs) | _names(get_certificate_algs),
        ),
        "signature_algs": _had(
            "PubkeyAcceptedAlgorithms", allowed.public_keys, _names(get_public_key_algs)
        ),
    }
    return {option: names for option, names in chosen.items() if names}


def preferred(ciphers: tuple[str, ...]) -> tuple[str, ...]:
    """Return the ciphers of a configuration, in the order to offer them.

    Where it allows what OpenSSH does by default, AES-GCM comes first: asyncssh takes 7 µs for a
    packet of it, and 47 µs for one of ChaCha20.

    >>> preferred(("chacha20-poly1305@openssh.com", "aes256-gcm@openssh.com"))
    ('chacha20-poly1305@openssh.com', 'aes256-gcm@openssh.com')
    """
    if set(ciphers) != BY_DEFAULT:
        return ciphers
    return (*GCM, *(each for each in ciphers if each not in GCM))


@cache
def _names(listed: object) -> frozenset[str]:
    """Return the names in one of asyncssh's lists."""
    assert callable(listed)
    return frozenset(name.decode() for name in listed())


def _had(option: str, allowed: Iterable[str], had: frozenset[str]) -> tuple[str, ...]:
    """Return the allowed names that asyncssh has, too; () if the configuration names none."""
    allowed = tuple(allowed)
    both = tuple(name for name in allowed if name in had)
    if allowed and not both:
        raise ValueError(f"{option} allows only {','.join(allowed)}, which gputui does not have")
    return both
