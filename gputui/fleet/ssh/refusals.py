"""What went wrong on the way to a host, in words, each with what puts it right."""

import errno
import shlex
import socket
from collections.abc import Collection

import asyncssh

from gputui.fleet.ssh.host_keys import HostKeys

Words = tuple[str, str]
"""(reason, hint)"""

KEY_ERRORS = (asyncssh.KeyImportError, asyncssh.KeyEncryptionError)
"""What asyncssh raises for a key file that cannot be read, a wrong passphrase included."""

RESOLVING_HINT = "correct the name, or give its HostName in ~/.ssh/config"
CONNECTING_HINT = "is the host up, and does a firewall let its SSH port through?"


def was_dropped(error: Exception) -> bool:
    """Return whether the server hung up before it said anything of SSH, as past MaxStartups."""
    return isinstance(error, ConnectionResetError | BrokenPipeError | asyncssh.ConnectionLost)


def configuration(error: Exception, config: str | None) -> Words:
    """Return what is wrong with an SSH configuration, or with a key it names."""
    return f"{config or '~/.ssh/config'} cannot be used: {error}", "correct it: ssh -G HOST shows"


def login(
    error: asyncssh.PermissionDenied, name: str, again: tuple[str, ...], opened: Collection[str]
) -> Words:
    """Return that a host let nobody in with what was offered."""
    doubt = f" (is the passphrase of {' and '.join(sorted(opened))} right?)" if opened else ""
    copy = shlex.join(("ssh-copy-id", *again))
    return (
        f"refused the login of {name}: {_plain(error.reason)}{doubt}",
        f"{copy}; or give an IdentityFile or User in ~/.ssh/config, or load ssh-agent",
    )


def handshake(error: Exception, where: str) -> Words:
    """Return why a connection to `where` (address:port) did not come to a login."""
    match error:
        case socket.gaierror():
            name = where.rpartition(":")[0].strip("[]")
            return f"{name} does not resolve: {error.strerror}", RESOLVING_HINT
        case asyncssh.ChannelOpenError():
            return f"the jump host cannot connect to {where}: {error.reason}", CONNECTING_HINT
        case asyncssh.KeyImportError() | asyncssh.KeyEncryptionError():
            return f"a key could not be used: {error}", "ssh-add it, and start again"
        case asyncssh.KeyExchangeFailed():
            return f"{where} shares no SSH algorithm with us: {error.reason}", ""
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


def host_key_question(keys: HostKeys) -> str:
    """Return what a person is asked about an unknown host key."""
    return (
        f"The host key of {keys.name} is not known. Its fingerprint is {keys.fingerprint()}. "
        f"Trust it, and write it to {keys.user_files[0]}?"
    )


def unknown_host_key(keys: HostKeys, again: tuple[str, ...]) -> Words:
    """Return the refusal of a key that nobody accepted."""
    command = shlex.join(("ssh", "-o", "StrictHostKeyChecking=accept-new", *again, "true"))
    return (
        f"the host key of {keys.name} is not known: {keys.fingerprint()}",
        f"if that is its fingerprint, accept it: {command}",
    )


def is_about_host_key(error: Exception, keys: HostKeys) -> bool:
    """Return whether a handshake failed because of the host key.

    With keys known, asyncssh offers only their kinds: a server that has none of these fails the
    key exchange. (asyncssh 2.24 says so in its message only.)
    """
    no_known_kind = isinstance(error, asyncssh.KeyExchangeFailed) and "host key" in error.reason
    return isinstance(error, asyncssh.HostKeyNotVerifiable) or (keys.known and no_known_kind)


def changed_host_key(keys: HostKeys, error: asyncssh.Error) -> Words:
    """Return the refusal of a key that is not the one that is known, or is revoked."""
    if keys.offered is None and not isinstance(error, asyncssh.KeyExchangeFailed):
        return f"the host key of {keys.name} is not valid: {_plain(error.reason)}", ""
    paths = (*keys.user_files, *keys.system_files)
    files = " or ".join(str(path) for path in paths if path.exists())
    now = keys.fingerprint() if keys.offered else "of another kind"
    forget = shlex.join(("ssh-keygen", "-R", keys.name, "-f", str(keys.user_files[0])))
    return (
        f"the host key of {keys.name} has changed: it is now {now}, and {files} has another; "
        "this may be another machine that pretends to be it",
        f"if the host was installed anew, forget its old key: {forget}",
    )


def _plain(reason: str) -> str:
    return reason.strip().rstrip(".") or "no reason given"
