"""Asks ssh what its configuration says of a host.

`ssh -G` takes some milliseconds, and as long as a `Match exec` of the user's or a DNS server
takes (CanonicalizeHostname): it runs in a child, some at once, within its caller's bound.
"""

import os
import pwd
import re
import shutil
import socket
from dataclasses import dataclass
from functools import cached_property

from gputui.fleet.ssh.configuration import Here, SshConfiguration, parse
from gputui.process.child import ending, run


class ConfigurationError(Exception):
    """The SSH configuration cannot be used; the message is ssh's own."""


@dataclass(frozen=True, slots=True)
class Destination:
    """A destination, as ssh takes it: `ssh [-F file] [-J jumps] [-l user] [-p port] name`."""

    name: str
    user: str | None = None
    port: int | None = None
    jumps: tuple[str, ...] = ()
    """As with -J, in place of what the configuration says."""

    def arguments(self, file: str | None) -> tuple[str, ...]:
        """Return the arguments that name it to ssh."""
        return (
            *(("-F", file) if file else ()),
            *(("-J", ",".join(self.jumps)) if self.jumps else ()),
            *(("-l", self.user) if self.user else ()),
            *(("-p", str(self.port)) if self.port else ()),
            self.name,
        )


class Evaluator:
    """Evaluates one SSH configuration for any number of hosts."""

    def __init__(self, file: str | None) -> None:
        self._file = file

    @cached_property
    def _here(self) -> Here:
        return this_machine()

    async def evaluate(
        self, destination: Destination, command: str | None = None
    ) -> SshConfiguration:
        """Evaluate the configuration for a destination; raises ConfigurationError.

        It is the one for a `command` there, or for a jump host.
        """
        if not (ssh := shutil.which("ssh")):
            raise ConfigurationError("OpenSSH's client (`ssh`, `ssh-keygen`) is not installed here")
        purpose = ["-o", "RemoteCommand=none", *(["-W", "localhost:22"] if command is None else [])]
        asked = [*destination.arguments(self._file), *([command] if command else [])]
        text = await _printed([ssh, "-T", "-G", *purpose, *asked])
        if "%C" in text:
            hashed = await _printed([ssh, "-T", "-G", "-o", "ControlPath=%C", *purpose, *asked])
            found = re.search(r"^controlpath (\w+)$", hashed, re.MULTILINE)
            text = text.replace("%C", found[1] if found else "%C")
        return understood(text, destination.name, self._here)


async def _printed(command: list[str]) -> str:
    ended = await run(command)
    if ended.status:
        said = "; ".join(ended.last_log_lines)
        raise ConfigurationError(said or f"`ssh -G` {ending(ended.status)}")
    return ended.output


Route = tuple[SshConfiguration, ...]
"""The hosts on the way, the one that is meant last."""


async def resolve_route(
    evaluator: Evaluator,
    destination: Destination,
    command: str | None = None,
    behind: tuple[Destination, ...] = (),
) -> Route:
    """Return the configurations of all hosts on the way, first to last.

    Of several jump hosts ssh takes the last one with those before it as its own: `ssh -J a,b c`
    is `ssh -J a b`, and then `c`. Raises ConfigurationError, for a loop too.
    """
    if destination in behind:
        names = [each.name for each in (*behind, destination)]
        raise ConfigurationError(f"ProxyJump goes in a loop: {' → '.join(names)}")
    try:
        configuration = await evaluator.evaluate(destination, command)
    except ConfigurationError as error:
        if "jumphost loop" in str(error):
            names = [each.name for each in (*behind, destination, destination)]
            error = ConfigurationError(f"ProxyJump goes in a loop: {' → '.join(names)}")
        raise error from None
    if not configuration.jumps:
        return (configuration,)
    *before, last = configuration.jumps
    jump = parse_jump(last, tuple(before))
    return (*await resolve_route(evaluator, jump, None, (*behind, destination)), configuration)


def parse_jump(text: str, before: tuple[str, ...] = ()) -> Destination:
    """Return the destination that a word of ProxyJump means.

    >>> parse_jump("me@[fd00::1]:2222")
    Destination(name='fd00::1', user='me', port=2222, jumps=())
    >>> parse_jump("ssh://jump:22").port
    22
    """
    text = text.removeprefix("ssh://").rstrip("/")
    user, _, address = text.rpartition("@")
    found = re.fullmatch(r"\[(.+)\](?::(\d+))?|([^:]+)(?::(\d+))?", address)
    if not found:
        return Destination(address, user or None, None, before)
    port = found[2] or found[4]
    return Destination(found[1] or found[3], user or None, int(port) if port else None, before)


def understood(text: str, name: str, here: Here) -> SshConfiguration:
    """Parse the output of `ssh -G` for a name; raises ConfigurationError."""
    try:
        return parse(text, name, here)
    except ValueError as error:
        raise ConfigurationError(f"`ssh -G {name}` printed something unknown: {error}") from error


def this_machine() -> Here:
    """Return this user and machine, for the tokens of a configuration."""
    uid = os.getuid()
    try:
        entry = pwd.getpwuid(uid)
        user, home = entry.pw_name, entry.pw_dir
    except KeyError:
        user, home = os.environ.get("USER", str(uid)), os.environ.get("HOME", "/")
    return Here(user, uid, home, socket.gethostname(), dict(os.environ), os.path.isfile)
