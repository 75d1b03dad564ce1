"""The messages for what goes wrong while connecting to a host, each with its hint."""

import errno
import os
import shlex
import socket
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

import asyncssh

from gputui.fleet.ssh.configuration import SshConfiguration, this_machine

Words = tuple[str, str]
"""(reason, hint)"""

CONNECTING_HINT = "is the host up, and does a firewall let its SSH port through?"


def resolving_hint() -> str:
    """Return the hint for an unknown name; ssh's home is that of the user's passwd entry."""
    home = this_machine().home
    moved = os.environ.get("HOME", home) != home
    file = f"{home}/.ssh/config (ssh does not look at $HOME)" if moved else "~/.ssh/config"
    return f"correct the name, or give its HostName in {file}"


def was_dropped(error: Exception) -> bool:
    """Return whether the server closed before it sent its SSH version, as past MaxStartups."""
    return isinstance(error, ConnectionResetError | BrokenPipeError | asyncssh.ConnectionLost)


def configuration(error: Exception, config: str | None = None) -> Words:
    """Explain a mistake in an SSH configuration, or in a key that it names."""
    return f"{config or 'the SSH configuration'}: {error}", "correct it: `ssh -G HOST` shows"


def not_honoured(configuration: SshConfiguration) -> Words:
    """Return that the configuration asks for what gputui does not have."""
    options = ", ".join(configuration.not_honoured)
    return (
        f"the SSH configuration of {configuration.name} has {options}, which gputui cannot follow",
        f"take it out for this host (`Host {configuration.name}` in ~/.ssh/config)",
    )


def login(said: str, configuration: SshConfiguration, problems: Mapping[str, str]) -> Words:
    """Return that a host refused every login that was offered, and what it said.

    `problems` are those of keys.
    """
    doubts = [f"{path}: {problem}" for path, problem in sorted(problems.items())]
    if configuration.is_on("hostbasedauthentication"):
        doubts.append("HostbasedAuthentication was not tried: gputui does not have it")
    said = "; ".join((_plain(said), *doubts))
    lacks_gssapi = configuration.is_on("gssapiauthentication") and find_spec("gssapi") is None
    kerberos = "; Kerberos needs: pip install gssapi" if lacks_gssapi else ""
    if "Too many authentication failures" in said:
        return (
            f"refused the login of {configuration.login_name}: {said}",
            "name its key in ~/.ssh/config: IdentityFile with IdentitiesOnly yes, so that "
            "ssh-agent's others are not offered first",
        )
    return (
        f"refused the login of {configuration.login_name}: {said}",
        f"{shlex.join(('ssh-copy-id', *configuration.again))}; "
        f"or give an IdentityFile or User in ~/.ssh/config, or load ssh-agent{kerberos}",
    )


def proxy(command: str, said: Sequence[str]) -> Words:
    """Return that a ProxyCommand ended, with its last lines."""
    return (
        f"its ProxyCommand failed: {'; '.join(said) or 'it ended without a word'}",
        f"try it alone: {command}",
    )


def handshake(error: Exception, where: str) -> Words:
    """Return why a connection to `where` (address:port) did not come to a login."""
    match error:
        case socket.gaierror():
            name = where.rpartition(":")[0].strip("[]")
            return f"{name} does not resolve: {error.strerror}", resolving_hint()
        case asyncssh.ChannelOpenError():
            return f"the jump host cannot connect to {where}: {error.reason}", CONNECTING_HINT
        case asyncssh.KeyExchangeFailed():
            return key_exchange(where, _plain(error.reason))
        case asyncssh.ConnectionLost():
            return (
                f"{where} closed the connection before the login: {_plain(error.reason)}",
                "its sshd may take no more connections at once (MaxStartups): retry",
            )
        case asyncssh.Error():
            return f"{where} does not answer as an SSH server: {_plain(error.reason)}", (
                "is that port sshd's? Write the right one: host:port"
            )
        case OSError(errno=errno.ECONNREFUSED):
            return (
                f"{where} refuses the connection",
                "start sshd there, or write the port it listens on: host:port",
            )
        case TimeoutError():
            return f"no answer from {where}", CONNECTING_HINT
        case OSError():
            return f"{where}: {error.strerror or error or type(error).__name__}", CONNECTING_HINT
    return f"{type(error).__name__}: {error}", ""


def key_exchange(where: str, said: str) -> Words:
    """Return that there is no algorithm that both ends allow."""
    return (
        f"{where} shares no SSH algorithm with us: {said}",
        "allow what it has: KexAlgorithms, Ciphers or HostKeyAlgorithms +NAME in ~/.ssh/config",
    )


def host_key_question(name: str, fingerprint: str, file: str, doubt: str) -> str:
    """Return the question about an unknown host key."""
    doubt = f" ({doubt})" if doubt else ""
    return (
        f"The host key of {name} is not known{doubt}. Its fingerprint is {fingerprint}. "
        f"Trust it, and write it to {file}?"
    )


def unknown_host_key(name: str, fingerprint: str, doubt: str, again: tuple[str, ...]) -> Words:
    """Return the refusal of a key that was not accepted."""
    known = f"the host key of {name} is not known: {fingerprint}"
    command = shlex.join(("ssh", "-o", "StrictHostKeyChecking=accept-new", *again, "true"))
    return (
        "; ".join(filter(None, (known, doubt))),
        f"if that is its fingerprint, accept it: {command}",
    )


def revoked_host_key(name: str, fingerprint: str) -> Words:
    """Return the refusal of a revoked key."""
    return f"the host key of {name} is revoked: {fingerprint}", ""


def weak_host_key(name: str, least_bits: int) -> Words:
    """Return the refusal of an RSA key that is too short."""
    return (
        f"the host key of {name} is an RSA key of fewer than {least_bits} bits",
        "give the host a longer key; or set RequiredRSASize in ~/.ssh/config",
    )


def changed_host_key(name: str, fingerprint: str, files: Sequence[str]) -> Words:
    """Return the refusal of a key that is not the one that is known."""
    known = " or ".join(path for path in files if Path(path).exists()) or "the system"
    file = next(iter(files), "~/.ssh/known_hosts")
    forget = shlex.join(("ssh-keygen", "-R", name, "-f", file))
    return (
        f"the host key of {name} has changed: it is now {fingerprint}, and {known} has "
        "another; this may be another machine that pretends to be it",
        f"if the host was installed again, forget its old key: {forget}",
    )


def other_key_of_address(name: str, address: str) -> Words:
    """Return the failure of CheckHostIP: the address is known with another key than the name."""
    return (
        f"the host key of {name} is not the one on record for its address {address}",
        f"if the address has changed hands, forget it: ssh-keygen -R {shlex.quote(address)}",
    )


def _plain(reason: str) -> str:
    return reason.strip().rstrip(".") or "no reason given"
