"""Asks ssh what its configuration says of a host; asyncssh's parser where no ssh is installed.

`ssh -G` takes some milliseconds, and as long as a `Match exec` of the user's or a DNS server
takes (CanonicalizeHostname): it runs in a child, some at once, within its caller's bound.
"""

import asyncio
import contextlib
import os
import pwd
import shutil
import socket
from dataclasses import dataclass

from gputui.fleet.ssh.configuration import Here, SshConfiguration, parse


class ConfigurationError(Exception):
    """The SSH configuration cannot be used; the message is ssh's own."""


@dataclass(frozen=True, slots=True)
class Destination:
    """What is asked of ssh: `ssh [-F file] [-J jumps] [-l user] [-p port] name`."""

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

    async def evaluate(self, destination: Destination) -> SshConfiguration:
        """Return what the configuration says; raises ConfigurationError."""
        here = this_machine()
        if not (ssh := shutil.which("ssh")):
            from gputui.fleet.ssh.fallback import read

            return await asyncio.to_thread(read, self._file, destination, here)
        text = await _output(ssh, "-T", "-G", *destination.arguments(self._file))
        return understood(text, destination.name, here)


def understood(text: str, name: str, here: Here) -> SshConfiguration:
    """Return what `ssh -G` printed for a name; raises ConfigurationError for anything else."""
    try:
        return parse(text, name, here)
    except ValueError as error:
        raise ConfigurationError(f"`ssh -G {name}` printed something unknown: {error}") from error


async def _output(*command: str) -> str:
    """Return what a command prints; raises ConfigurationError with what it said instead.

    Nothing of it is left where it is given up: the caller has the bound.
    """
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        output, problem = await process.communicate()
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, 9)
            await process.wait()
    if process.returncode:
        said = problem.decode("utf-8", "replace").strip().splitlines()
        raise ConfigurationError("; ".join(said) or f"`ssh -G` ended with {process.returncode}")
    return output.decode("utf-8", "replace")


def this_machine() -> Here:
    """Return what the configuration's tokens mean here and now."""
    uid = os.getuid()
    try:
        entry = pwd.getpwuid(uid)
        user, home = entry.pw_name, entry.pw_dir
    except KeyError:
        user, home = os.environ.get("USER", str(uid)), os.environ.get("HOME", "/")
    return Here(user, uid, home, socket.gethostname(), dict(os.environ))
