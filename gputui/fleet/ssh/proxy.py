"""A ProxyCommand: the user's shell runs it, as under ssh, with a socket for stdin and stdout."""

import asyncio
import contextlib
import os
import signal
import socket
from collections import deque

from gputui.fleet.link import READ_BYTES, STDERR_LINES


class Proxy:
    """A running ProxyCommand."""

    def __init__(self, process: asyncio.subprocess.Process, end: socket.socket) -> None:
        self.socket = end
        """Our end of its stdin and stdout."""
        self._process = process
        self._said: deque[str] = deque(maxlen=STDERR_LINES)
        self._reader = asyncio.create_task(self._read_stderr())

    @classmethod
    async def start(cls, command: str) -> "Proxy":
        """Start the command; raises OSError."""
        ours, its = socket.socketpair()
        ours.setblocking(False)
        try:
            process = await asyncio.create_subprocess_exec(
                os.environ.get("SHELL") or "/bin/sh",
                "-c",
                f"exec {command}",
                stdin=its.fileno(),
                stdout=its.fileno(),
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,
            )
        except OSError:
            ours.close()
            raise
        finally:
            its.close()
        return cls(process, ours)

    async def last_log_lines(self) -> tuple[str, ...]:
        """Return what it said on stderr, once it has ended, or after a moment."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.5):
                await asyncio.shield(self._reader)
        return tuple(self._said)

    async def close(self) -> None:
        """End it with all that it started, as ssh does with SIGHUP; kill what stays."""
        self._reader.cancel()
        self._signal(signal.SIGHUP)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1):
                await self._process.wait()
        self._signal(signal.SIGKILL)
        await self._process.wait()

    def _signal(self, number: int) -> None:
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    async def _read_stderr(self) -> None:
        assert self._process.stderr
        while chunk := await self._process.stderr.read(READ_BYTES):
            self._said.extend(chunk.decode("utf-8", "replace").splitlines())
