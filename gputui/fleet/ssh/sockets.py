"""From a name to a socket: of its addresses, in their order and each in time; or a ProxyCommand.

An ssh that a ProxyCommand runs has no terminal: its questions are asked here (`Askpass`).
"""

import asyncio
import contextlib
import os
import shlex
import signal
import socket
import sys
import tempfile
import threading
from asyncio.staggered import staggered_race
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any, Self

from gputui.fleet.ssh import refusals
from gputui.fleet.ssh.configuration import FAMILIES, SshConfiguration
from gputui.fleet.stages import Question, Stages
from gputui.model.snapshot import HostState
from gputui.process.child import Child

NEXT_ADDRESS_S = 2.0
"""How long an address is waited for before the next one of a name is tried as well."""

PROXY_LINES_S = 0.5
PROXY_GRACE_S = 1.0

QUESTION_BYTES = 10_000
CLIENT = """
import socket, sys
own = socket.socket(socket.AF_UNIX)
own.connect(sys.argv[1])
own.sendall(sys.argv[2].encode("utf-8", "surrogateescape"))
own.shutdown(socket.SHUT_WR)
answer = b"".join(iter(lambda: own.recv(4096), b""))
sys.stdout.buffer.write(answer)
sys.exit(not answer)
"""

AddressInfo = tuple[socket.AddressFamily, socket.SocketKind, int, str, Any]
"""An answer of getaddrinfo."""


async def open_socket(configuration: SshConfiguration, stages: Stages) -> socket.socket:
    """Resolve the name and connect to the first of its addresses that answers."""
    name, port = configuration.hostname, configuration.port
    late = f"{name} was not resolved in time"
    async with stages.enter(HostState.RESOLVING, late, refusals.resolving_hint()):
        found = await _resolve(name, port, FAMILIES.get(configuration.word("addressfamily"), 0))
        sources = [await _source(configuration, each[0]) for each in found]
    late = f"no answer from {configuration.where}"
    bound_s = configuration.number("connecttimeout", 0)
    async with stages.enter(HostState.CONNECTING, late, refusals.CONNECTING_HINT, bound_s=bound_s):
        attempts = [partial(_connect, *pair) for pair in zip(found, sources, strict=True)]
        winner, _, problems = await staggered_race(attempts, NEXT_ADDRESS_S)
    if not isinstance(winner, socket.socket):
        raise next((each for each in reversed(problems) if each), OSError("no address"))
    return winner


def _numeric(name: str, port: int, family: int) -> list[AddressInfo]:
    """Resolve a numeric address, without asking any server; return [] for a name."""
    numeric = socket.AI_NUMERICHOST
    try:
        return list(socket.getaddrinfo(name, port, family, socket.SOCK_STREAM, flags=numeric))
    except (OSError, UnicodeError):
        return []


async def _resolve(name: str, port: int, family: int) -> list[AddressInfo]:
    """Return the addresses of a name; raises socket.gaierror.

    In a thread of its own: names that no server answers for hold up neither other hosts, as
    they would in asyncio's few threads, nor the end of this process. An address needs none.
    """
    if numeric := _numeric(name, port, family):
        return numeric
    resolved: Future[list[AddressInfo]] = Future()
    resolved.set_running_or_notify_cancel()

    def resolve() -> None:
        try:
            resolved.set_result(list(socket.getaddrinfo(name, port, family, socket.SOCK_STREAM)))
        except OSError as error:
            resolved.set_exception(error)
        except UnicodeError:
            words = "not a name that DNS allows"
            resolved.set_exception(socket.gaierror(socket.EAI_NONAME, words))

    threading.Thread(target=resolve, name=f"resolve {name}", daemon=True).start()
    return await asyncio.wrap_future(resolved)


async def _source(configuration: SshConfiguration, family: int) -> Any:
    """Return the address to connect from, by BindAddress or BindInterface; None for any."""
    if address := configuration.word("bindaddress"):
        return (await _resolve(address, 0, family))[0][4]
    if not (interface := configuration.word("bindinterface")):
        return None
    import psutil

    for each in psutil.net_if_addrs().get(interface, ()):
        if each.family == family:
            return (await _resolve(each.address, 0, family))[0][4]
    raise OSError(f"BindInterface {interface} has no address for it")


async def _connect(info: AddressInfo, source: Any) -> socket.socket:
    family, kind, protocol, _, address = info
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setblocking(False)
        if source is not None:
            sock.bind(source)
        await asyncio.get_running_loop().sock_connect(sock, address)
    except BaseException:
        sock.close()
        raise
    return sock


class Askpass:
    """A program for SSH_ASKPASS, and the socket at which it passes questions on."""

    def __init__(self, stages: Stages) -> None:
        self._stages = stages
        self._folder = tempfile.TemporaryDirectory(prefix="gputui-askpass-")

    async def start(self) -> Self:
        """Make the program, and listen for it."""
        program, path = self._program, f"{self._folder.name}/socket"
        client = shlex.join([sys.executable, "-IS", "-c", CLIENT, path])
        program.write_text(f'#!/bin/sh\nexec {client} "$1"\n')
        program.chmod(0o700)
        self._server = await asyncio.start_unix_server(self._pass_on, path)
        return self

    @property
    def environment(self) -> dict[str, str]:
        """The variables that have an ssh ask the program."""
        return {
            "SSH_ASKPASS": str(self._program),
            "SSH_ASKPASS_REQUIRE": "force",
            "DISPLAY": os.environ.get("DISPLAY", "none"),
        }

    def close(self) -> None:
        """Remove the program, and listen no longer."""
        self._server.close()
        self._folder.cleanup()

    @property
    def _program(self) -> Path:
        return Path(self._folder.name, "askpass")

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Ask the user and send the answer, if any."""
        with contextlib.closing(writer), contextlib.suppress(OSError):
            text = (await reader.read(QUESTION_BYTES)).decode("utf-8", "replace").strip()
            answer = await self._stages.ask(question(text))
            if answer is not None:
                writer.write(f"{answer}\n".encode())
                await writer.drain()


def question(text: str) -> Question:
    """Return a prompt of ssh's as a question.

    >>> question("Enter passphrase for key '/k': ").kind, question("me@a's password:").secret
    ('passphrase', True)
    """
    if "continue connecting" in text:
        return Question("host-key", text, False)
    return Question("passphrase" if "passphrase" in text else "password", text, True)


class Proxy:
    """A running ProxyCommand: the user's shell runs it, as under ssh."""

    def __init__(self, command: str, askpass: Askpass) -> None:
        """Start the command; raises OSError."""
        self.command = command
        self._askpass = askpass
        ours, its = socket.socketpair()
        with its:
            try:
                self._child = Child(
                    [os.environ.get("SHELL") or "/bin/sh", "-c", f"exec {command}"],
                    stdin=its.fileno(),
                    stdout=its.fileno(),
                    env={**os.environ, **askpass.environment},
                    own_session=True,
                )
            except OSError:
                ours.close()
                askpass.close()
                raise
        ours.setblocking(False)
        self.socket = ours
        """Our end of its stdin and stdout."""

    async def last_log_lines(self) -> tuple[str, ...]:
        """Return its last lines of stderr, once it has ended, or after a moment."""
        await self._child.wait(PROXY_LINES_S)
        return self._child.last_log_lines

    async def close(self) -> None:
        """End it with all that it started, with SIGHUP as ssh does; kill what stays."""
        await self._child.end(PROXY_GRACE_S, signal.SIGHUP)
        self._askpass.close()
