"""The agent's hold on its forkserver: starts it, orders from it, hears it, and starts it again.

The forkserver gets a list of what to remove should the agent be killed. One that ends before it was
ready cannot import what workers need; after a few tries it is given up, with what it said.
"""

import asyncio
import contextlib
import json
import socket
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gputui.process.lifetime import Place, own_command

PACKET_BYTES = 2**19
TRIES = 3
"""Starts in a row that may fail before the forkserver is given up."""
BACKOFF_S = 1.0
CLOSING_S = 2.0
LAST_LINES = 3

WORKER_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MALLOC_TRIM_THRESHOLD_": "65536",
}
"""What must be there before NumPy and the loader read it, unless the host's `env.X=` says else.

Source: `distributed.nanny.pre-spawn-environ`.
"""


class ForkserverProcess:
    """The forkserver of one agent, over all its restarts."""

    def __init__(
        self,
        environ: Mapping[str, str],
        scratch: Path,
        place: Place,
        *,
        heard: Callable[[dict[str, Any]], None],
        lost: Callable[[str, bool], None],
    ) -> None:
        """Call `heard` with what it tells, `lost` with its last words and whether to give up."""
        self._environ = {**WORKER_ENVIRONMENT, **environ}
        self._scratch = scratch
        self._place = place
        self._heard = heard
        self._lost = lost
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._restart: asyncio.TimerHandle | None = None
        self._failures = 0
        self.ready = False
        """Whether it has imported what workers need, and takes orders."""

    def start(self) -> None:
        """Start it, if it does not run and is not about to."""
        if self._control is not None or self._restart is not None:
            return
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for end in (ours, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, PACKET_BYTES)
        handed = (str(theirs.fileno()), str(self._scratch), str(self._place.path))
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*own_command(), "forkserver", *handed],
                env=self._environ,
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        theirs.close()
        ours.setblocking(False)
        self._control = ours
        asyncio.get_running_loop().add_reader(ours.fileno(), self._hear)

    def order(self, order: dict[str, Any], descriptors: tuple[int, ...] = ()) -> None:
        """Give an order, with descriptors; one to a forkserver that just ended is lost with it."""
        if self._control is None:
            return
        self._control.setblocking(True)
        try:
            with contextlib.suppress(OSError):
                socket.send_fds(self._control, [json.dumps(order).encode()], list(descriptors))
        finally:
            self._control.setblocking(False)

    async def close(self) -> None:
        """Have it end all workers and itself."""
        if self._restart is not None:
            self._restart.cancel()
        self._hang_up()
        if self._process is not None:
            try:
                await asyncio.to_thread(self._process.wait, CLOSING_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    @property
    def _log(self) -> Path:
        return self._scratch / "forkserver.log"

    def _hear(self) -> None:
        """Take what it tells; the end of the socket is its own end."""
        assert self._control is not None
        try:
            data = self._control.recv(PACKET_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._ended()
            return
        message = json.loads(data)
        if "ready" in message:
            self._failures, self.ready = 0, True
        self._heard(message)

    def _ended(self) -> None:
        """Start it again after a while, unless it fails every time."""
        assert self._process is not None
        self._hang_up()
        self._process.wait()
        self._failures += 1
        given_up = self._failures >= TRIES
        if given_up:
            self._failures = 0
        else:
            wait_s = BACKOFF_S * (self._failures - 1)
            self._restart = asyncio.get_running_loop().call_later(wait_s, self._start_again)
        self._lost(self._last_log_lines(), given_up)

    def _start_again(self) -> None:
        self._restart = None
        self.start()

    def _hang_up(self) -> None:
        self.ready = False
        if self._control is not None:
            asyncio.get_running_loop().remove_reader(self._control.fileno())
            self._control.close()
            self._control = None

    def _last_log_lines(self) -> str:
        """Return the end of what it printed, in one line."""
        with contextlib.suppress(OSError):
            said = self._log.read_text(errors="replace").splitlines()[-LAST_LINES:]
            return " ".join(line.strip() for line in said)
        return ""
