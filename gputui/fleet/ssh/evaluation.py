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

from gputui.fleet.ssh.configuration import Here, SshConfiguration, substitute
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
    """As with -J, overriding the configuration."""

    def arguments(self, file: str | None) -> tuple[str, ...]:
        """Return the arguments that name it to ssh."""
        return (
            *(("-F", file) if file else ()),
            *(("-J", ",".join(self.jumps)) if self.jumps else ()),
            *(("-l", self.user) if self.user else ()),
            *(("-p", str(self.port)) if self.port else ()),
            self.name,
        )


Route = tuple[SshConfiguration, ...]
"""The hosts on the way, the one that is meant last."""


class Evaluator:
    """Evaluates one SSH configuration for any number of hosts."""

    def __init__(self, file: str | None) -> None:
        self._file = file

    @cached_property
    def _here(self) -> Here:
        return this_machine()

    async def route(
        self,
        destination: Destination,
        command: str = "",
        behind: tuple[Destination, ...] = (),
    ) -> Route:
        """Return the configurations of all hosts on the way, first to last.

        The last one is for a `command` there. Of several jump hosts ssh takes the last one with
        those before it as its own: `ssh -J a,b c` is `ssh -J a b`, and then `c`. Raises
        ConfigurationError, for a loop too.
        """
        on_the_way = (*behind, destination)
        loop = " → ".join(each.name for each in on_the_way)
        if destination in behind:
            raise ConfigurationError(f"ProxyJump goes in a loop: {loop}")
        try:
            configuration = await self._evaluate(destination, command)
        except ConfigurationError as error:
            if "jumphost loop" not in str(error):
                raise
            loop = f"{loop} → {destination.name}"
            raise ConfigurationError(f"ProxyJump goes in a loop: {loop}") from None
        if not configuration.jumps:
            return (configuration,)
        *before, last = configuration.jumps
        jump = parse_jump(last, tuple(before))
        return (*await self.route(jump, "", on_the_way), configuration)

    async def _evaluate(self, destination: Destination, command: str) -> SshConfiguration:
        """Evaluate the configuration for a command there, or for a jump host without one."""
        options = ["-o", "RemoteCommand=none", *([] if command else ["-W", "localhost:22"])]
        again = destination.arguments(self._file)
        asked = [*options, *again, *([command] if command else [])]
        text = await _ssh_g(*asked)
        if "%C" in text:
            hashed = re.search(r"(?m)^controlpath (.+)$", await _ssh_g("-oControlPath=%C", *asked))
            text = substitute(text, {"C": hashed[1] if hashed else "%C"})
        return SshConfiguration(destination.name, text, self._here, again)


async def _ssh_g(*arguments: str) -> str:
    if not (ssh := shutil.which("ssh")):
        raise ConfigurationError("OpenSSH's client (`ssh`, `ssh-keygen`) is not installed here")
    ended = await run([ssh, "-T", "-G", *arguments])
    if ended.status:
        said = "; ".join(ended.last_log_lines)
        raise ConfigurationError(said or f"`ssh -G` {ending(ended.status)}")
    return ended.output


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


def this_machine() -> Here:
    """Return this user and machine, for the tokens of a configuration."""
    uid = os.getuid()
    try:
        entry = pwd.getpwuid(uid)
        user, home = entry.pw_name, entry.pw_dir
    except KeyError:
        user, home = os.environ.get("USER", str(uid)), os.environ.get("HOME", "/")
    return Here(user, uid, home, socket.gethostname(), dict(os.environ), os.path.isfile)
