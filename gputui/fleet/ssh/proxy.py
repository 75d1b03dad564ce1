"""A ProxyCommand: the user's shell runs it, as under ssh, with a socket for stdin and stdout."""

import os
import signal
import socket

from gputui.process.child import Child

LAST_LINES_S = 0.5
GRACE_S = 1.0


class Proxy:
    """A running ProxyCommand."""

    def __init__(self, command: str) -> None:
        """Start the command; raises OSError."""
        ours, its = socket.socketpair()
        with its:
            try:
                self._child = Child(
                    [os.environ.get("SHELL") or "/bin/sh", "-c", f"exec {command}"],
                    stdin=its.fileno(),
                    stdout=its.fileno(),
                    own_session=True,
                )
            except OSError:
                ours.close()
                raise
        ours.setblocking(False)
        self.socket = ours
        """Our end of its stdin and stdout."""

    async def last_log_lines(self) -> tuple[str, ...]:
        """Return what it said on stderr, once it has ended, or after a moment."""
        await self._child.wait(LAST_LINES_S)
        return self._child.last_log_lines

    async def close(self) -> None:
        """End it with all that it started, with SIGHUP as ssh does; kill what stays."""
        await self._child.end(GRACE_S, signal.SIGHUP)
