"""A connection that the user's own ssh holds open (ControlMaster), used through that ssh.

It is how people reach hosts whose logins need a code: they log in once, by hand, and what
follows goes through the control socket.
"""

import shlex
import socket
from pathlib import Path

from gputui.fleet.addresses import bracketed
from gputui.fleet.agent_channel import LocalStream
from gputui.process.child import run

LOOPBACK = "127.0.0.1"
BOUND_S = 10.0


class ControlMaster:
    """The control socket of one host; the same calls as an `SshConnection` has."""

    local_address = far_address = ""
    """Only the host knows."""

    def __init__(self, path: str, destination: tuple[str, ...]) -> None:
        self._path = Path(path)
        self._destination = destination
        self._forwarded: list[str] = []

    @property
    def is_lost(self) -> bool:
        """Whether the socket is gone, as it is when its ssh ends."""
        return not self._path.is_socket()

    async def is_alive(self) -> bool:
        """Return whether an ssh answers at the socket."""
        return not self.is_lost and (await run(self._ssh("-O", "check"), BOUND_S)).status == 0

    async def run(self, command: str) -> LocalStream:
        """Run a command, without a terminal."""
        options = ("-o", "RemoteCommand=none", "-o", "SessionType=default")
        return await LocalStream.start([*self._ssh("-T", *options), command], {})

    def proxy_command(self, host: str, port: int) -> str:
        """Return the command that connects to another host from there."""
        return shlex.join(self._ssh("-W", f"{bracketed(host)}:{port}"))

    async def forward_socket(self, path: str, there: str) -> None:
        """Have a Unix socket at `path` here lead to the one at `there`; raises OSError."""
        await self._forward(f"{path}:{there}")

    async def forward_port(self, host: str, port: int) -> int:
        """Return a port of the loopback address here that leads to one that the other end sees.

        Raises OSError where no port is available.
        """
        with socket.create_server((LOOPBACK, 0)) as server:
            own: int = server.getsockname()[1]
        await self._forward(f"{LOOPBACK}:{own}:{bracketed(host)}:{port}")
        return own

    def keep_alive(self, interval_s: float, count: int) -> None:
        """Do nothing: the ssh that holds the connection has its own settings for that."""

    async def close(self) -> None:
        """End the forwardings; the connection stays, as it is the user's."""
        while self._forwarded:
            await run(self._ssh("-O", "cancel", "-L", self._forwarded.pop()), BOUND_S)

    async def _forward(self, what: str) -> None:
        ended = await run(self._ssh("-O", "forward", "-L", what), BOUND_S)
        if ended.status:
            raise OSError(0, f"{what}: {'; '.join(ended.last_log_lines)}")
        self._forwarded.append(what)

    def _ssh(self, *options: str) -> list[str]:
        own = ("-S", str(self._path), "-o", "ControlMaster=no")
        return ["ssh", *own, *options, *self._destination]
