"""The head of a cluster on another machine, reached over one SSH connection.

It forwards a Unix socket here to the head's there, and a port of the loopback address to the
scheduler's: nothing but SSH's port is needed. One that was lost (the laptop slept, or moved) is
made again when the head is next looked for; the head there sees a frontend that left, no more.
"""

import asyncio
import contextlib
import json
import os
import re
import secrets
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

from gputui.client.head_connection import HeadConnection
from gputui.errors import GputuiError, HeadError, HostError, UsageError
from gputui.fleet.deploy import remote
from gputui.fleet.deploy.start_agent import interpreters_for, starting_python
from gputui.fleet.ssh.connector import Connector
from gputui.fleet.stages import Ask, Question, Stages
from gputui.folders import runtime_folder
from gputui.model.hosts import parse_hosts
from gputui.model.plain_text import safe
from gputui.process.procfs import exists
from gputui.protocol.codec import shown
from gputui.protocol.connection_file import ConnectionFile, chosen, parse
from gputui.protocol.frontend import Asked
from gputui.settings import load_settings
from gputui.version import __version__

if TYPE_CHECKING:
    from gputui.fleet.session import CommandStream
    from gputui.fleet.ssh.routes import Connection

GREETING = b"gputui-there-1"
MOST_BYTES = 2**20
"""That the other machine may say before it answers."""
KEEPALIVE_S = 5
SCREENS_KEEPALIVE_S = 1
"""A screen loses nothing with a connection: it makes another one as soon as that is possible."""
KEEPALIVES = 3
"""Unanswered ones after which a connection is lost."""
ANSWER_S = 20.0
"""How long a machine that was reached before may take once it is logged in to."""
FORWARD_S = 5.0
ANSWERS: Mapping[str, tuple[Mapping[str, type], ...]] = {
    "find": ({"clusters": list},),
    "stop": ({"stopped": bool},),
    "listen": ({"socket": str, "port": int},),
    "up": ({"status": int, "said": str, "warned": str}, {"looked": list}),
}
"""What `there.py` answers to each order; another machine may say anything."""
AT_LENGTH = ("stop", "up")
"""Orders that take their time; another one has shown before that a shell there starts Python."""


class RemoteHead:
    """A cluster's head on another machine, for one event loop; opened again and again.

    `ask` answers SSH's questions, until a screen does.
    """

    def __init__(self, login: str, name: str, ask: Ask) -> None:
        """Raises UsageError where `login` cannot be a machine."""
        self.name = name
        """The cluster's; "" is the only one there."""
        self.login = login
        """The machine, as it was named."""
        self._keepalive_s = KEEPALIVE_S
        self._host, *more = parse_hosts(login, login)
        if more or self._host.is_local:
            raise UsageError(f"{login}: name one machine to log in to, such as user@login")
        self._settings = load_settings()
        self._ask = ask
        self._connector: Connector | None = None
        """Kept, since it knows the passphrases that were given."""
        self._connection: Connection | None = None
        self._sockets: dict[str, str] = {}
        self._addresses: dict[str, str] = {}
        self._met = False

    @classmethod
    def named(cls, given: str, ask: Ask) -> "RemoteHead | None":
        """Return the head that `user@login:NAME` means; None for a cluster on this machine.

        >>> found = [RemoteHead.named(each, nobody) for each in ("me@login:lab", "me@[::1]", "lab")]
        >>> [each and (each.login, each.name) for each in found]
        [('me@login', 'lab'), ('me@[::1]', ''), None]
        """
        found = re.fullmatch(r"((?:[^@:/\s]+@)?(?:\[[^]\s]+\]|[^@:/\s]+))(:.*)?", given)
        if found is None or not ("@" in found[1] or found[2]):
            return None
        return cls(found[1], (found[2] or ":")[1:], ask)

    async def open(self, *, frontend: str, snapshots: bool = False) -> HeadConnection:
        """Attach to the head; closing the connection closes SSH's, too.

        Raises as `reach` does, and HeadError where the head turns this frontend away.
        """
        try:
            cluster = await self.reach()
        except GputuiError:
            if not self._met:
                await self.close()
            raise
        try:
            connection = await HeadConnection.open(
                cluster.socket, frontend=frontend, snapshots=snapshots, compressed=True
            )
        except HeadError as error:
            await self.close()
            words, there = [str(error)], cluster.version
            if there != __version__:
                words.append(
                    f"{self._host.name} has gputui {there}, and this machine {__version__}: "
                    f"pip install gputui=={there} here, or start the cluster again with "
                    f"{__version__} there"
                )
            raise type(error)("\n  ".join(words)) from error
        name = connection.attached.name
        connection.where, connection.forward = self._host.name, self.forwarded
        connection.at_close = self.close
        connection.why_cut = lambda: (
            f"the SSH connection to {self._host.name} was cut; the cluster {name} goes on there: "
            f"gputui attach {self.login}:{name}"
            if self.is_cut
            else ""
        )
        try:
            connection.address = await self.forwarded(connection.attached.address)
            connection.dashboard = await self.forwarded(connection.attached.dashboard)
        except BaseException:
            await connection.close()
            raise
        return connection

    async def reach(self) -> ConnectionFile:
        """Return the cluster, with a socket here that leads to its head.

        Raises HostError where the machine cannot be logged in to, UsageError where it is not clear
        which cluster is meant, HeadError where the way to its head is closed.
        """
        try:
            await self._connected()  # has bounds of its own, which wait for a person
            async with asyncio.timeout(ANSWER_S if self._met else None):
                cluster = chosen(await self._found(), self.name, self.login)
            socket = await self._forwarded_socket(cluster.socket)
        except OSError as error:
            raise HeadError(f"{self._host.name}: {str(error) or 'no answer'}") from error
        except (HostError, UsageError) as error:
            if not self._met:
                raise
            # It was reached before: worth another try, also where it is started again.
            raise HeadError(str(error)) from error
        self._met = True
        return replace(cluster, socket=socket)

    @property
    def is_cut(self) -> bool:
        """Whether the SSH connection is gone."""
        return self._connection is None or self._connection.is_lost

    def ask_on_screen(self, ask: Callable[[Asked], Coroutine[Any, Any, str | None]]) -> None:
        """Have a screen answer SSH's questions, and notice a silent network soon for it."""

        async def asked(question: Question) -> str | None:
            return await ask(
                Asked(0, self._host.name, question.kind, question.text, question.secret)
            )

        self._ask = asked
        self._keepalive_s = SCREENS_KEEPALIVE_S
        self._keep_alive()

    async def clusters(self) -> tuple[ConnectionFile, ...]:
        """Return the clusters that run there, each with a socket here that leads to its head.

        The socket is "" where nothing listens there. Raises as `reach` does.
        """
        found = []
        for cluster in await self._found():
            socket = ""
            with contextlib.suppress(OSError):
                socket = await self._forwarded_socket(cluster.socket)
            found.append(replace(cluster, socket=socket))
        return tuple(found)

    async def stop(self) -> str:
        """Stop a cluster by a signal to its head, whichever version that is; returns its name."""
        cluster = chosen(await self._found(), self.name, self.login)
        order = {"do": "stop", "pid": cluster.pid, "id": cluster.cluster_id, "name": cluster.name}
        if not (await self._ordered(order))["stopped"]:
            raise HeadError(
                f"{cluster.name}: its head on {self._host.name}, process {cluster.pid} of gputui "
                f"{cluster.version}, did not stop; use that version, or end the process there"
            )
        return cluster.name

    async def start(
        self, arguments: Sequence[str], hosts_text: str, gputui: str = ""
    ) -> Mapping[str, Any]:
        """Run `gputui up` there; it ends where the connection is closed before.

        `gputui` is its path there, "" to look for it. The answer has status, said and warned;
        where no gputui was found, `looked`, the places. Raises HeadError where a cluster there
        could not be used from here.
        """
        there = await self._ordered({"do": "listen"})
        if not 0 < there["port"] < 2**16:
            raise HeadError(f"{self._host.name}: its answer is no answer: port {there['port']}")
        refused = []
        try:
            await self._forwarded_socket(there["socket"])
        except OSError:
            refused.append("AllowStreamLocalForwarding yes")
        connection = await self._connected()
        port = await connection.forward_port("127.0.0.1", there["port"])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        answered = b""
        with contextlib.suppress(OSError):  # running out of time is one, too
            async with asyncio.timeout(FORWARD_S):
                answered = await reader.read(1)
        writer.close()
        if not answered:
            refused.append("AllowTcpForwarding yes, PermitOpen any")
        if refused:
            raise HeadError(
                f"{self._host.name} forbids forwarding, by which a cluster there is used: nothing "
                f"was started\n  its sshd_config needs {', '.join(refused)}, and no "
                "DisableForwarding; your key there, no restrict"
            )
        return await self._ordered(
            {
                "do": "up",
                "arguments": [*arguments],
                "hosts": hosts_text,
                "gputui": gputui or self._settings.remote_gputui or "",
                "here": str(Path(sys.executable).with_name("gputui")),
            }
        )

    async def close(self) -> None:
        """Close the connection; `reach` makes another one."""
        self._addresses.clear()
        for path in self._sockets.values():
            Path(path).unlink(missing_ok=True)
        self._sockets.clear()
        if self._connection is not None:
            connection, self._connection = self._connection, None
            await connection.close()
        if self._connector is not None:
            await self._connector.close()

    async def _found(self) -> list[ConnectionFile]:
        found = (await self._ordered({"do": "find"}))["clusters"]
        return [each for row in found if (each := parse(row)) is not None]

    async def _connected(self) -> "Connection":
        if self._connection is not None and not self.is_cut:
            return self._connection
        await self.close()
        self._connector = self._connector or Connector(self._settings.ssh_config)
        self._connection = await self._connector.connect(self._host, self._stages(), remote.COMMAND)
        self._keep_alive()
        return self._connection

    def _stages(self) -> Stages:
        return Stages(self._host.name, self._settings.stage_timeout_s, ask=self._ask)

    def _keep_alive(self) -> None:
        if self._connection is not None:
            self._connection.keep_alive(self._keepalive_s, KEEPALIVES)

    async def _ordered(self, order: Mapping[str, Any]) -> Mapping[str, Any]:
        """Have a script there carry out an order, and return its answer.

        Raises HeadError, and HostError where the login shell does not start Python in time.
        """
        connection = await self._connected()
        stream = await connection.run(remote.COMMAND)
        bounded = (
            contextlib.nullcontext()
            if order["do"] in AT_LENGTH
            else starting_python(self._host, self._stages())
        )
        try:
            async with bounded:
                return await self._answered(stream, order)
        except BaseException:  # the shell there may go on waiting
            await asyncio.shield(stream.close())
            raise

    async def _answered(
        self, stream: "CommandStream", order: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        script = ascii(Path(__file__).with_name("there.py").read_text(encoding="utf-8"))
        stream.write(remote.first_lines(interpreters_for(self._host), script, order))
        said = b""
        while len(said) < MOST_BYTES and (data := await stream.read()):
            said += data
            if found := re.search(GREETING + rb" (.*)\n", said):
                answer: Any = None
                with contextlib.suppress(ValueError, RecursionError):
                    answer = json.loads(found[1])
                for shape in ANSWERS[order["do"]] if isinstance(answer, dict) else ():
                    if all(isinstance(answer.get(key), kind) for key, kind in shape.items()):
                        return dict(answer)
                what = safe(shown(found[1]))
                raise HeadError(f"{self._host.name}: its answer is no answer: {what}")
        last = (*stream.stderr_tail, *said.decode("utf-8", "replace").splitlines())[-1:]
        raise HeadError(f"{self._host.name}: {': '.join(['no Python there answered', *last])}")

    async def _forwarded_socket(self, there: str) -> str:
        """Return the path here that leads to a socket there; raises OSError."""
        if there not in self._sockets:
            folder = runtime_folder()
            for left in folder.glob("remote-*-*.sock"):  # of frontends that were killed
                pid = left.name.split("-")[1]
                if pid.isdigit() and not exists(int(pid)):
                    left.unlink(missing_ok=True)
            path = str(folder / f"remote-{os.getpid()}-{secrets.token_hex(4)}.sock")
            connection = await self._connected()
            await connection.forward_socket(path, there)
            self._sockets[there] = path
        return self._sockets[there]

    async def forwarded(self, address: str) -> str:
        """Return the address here that leads to one there, such as `tls://host:port`.

        Raises HeadError where there is no way to it, or where it is none.
        """
        if address and address not in self._addresses:
            try:
                parts = urlsplit(address)
                if not (parts.hostname and parts.port):
                    raise ValueError
            except ValueError:
                where = f"{self._host.name}: its head names no address: {safe(address[:80])}"
                raise HeadError(where) from None
            try:
                async with asyncio.timeout(FORWARD_S):
                    connection = await self._connected()
                    port = await connection.forward_port(parts.hostname, parts.port)
            except OSError as error:
                raise HeadError(f"{self._host.name}: {str(error) or 'no answer'}") from error
            self._addresses[address] = urlunsplit(parts._replace(netloc=f"127.0.0.1:{port}"))
        return self._addresses.get(address, "")


async def nobody(question: Question) -> str | None:
    """Answer no question: no user is there to ask."""
    return None
