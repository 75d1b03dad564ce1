"""What a command on a host writes to stderr: its last lines are kept, and a flood costs little."""

import asyncio
import time
from types import SimpleNamespace
from typing import Any

from gputui.fleet.ssh.connection import STDERR_BYTES_PER_S, SshStream


class Flood:
    def __init__(self) -> None:
        self.read_bytes = 0

    async def read(self, most: int) -> bytes:
        self.read_bytes += most
        return b"again and again\n" * (most // 16)


async def test_stderr_without_end_is_read_at_a_bounded_rate() -> None:
    flood = Flood()
    process: Any = SimpleNamespace(stderr=flood, close=lambda: None)
    began = time.monotonic()
    stream = SshStream(process, connection=SimpleNamespace(close=_close))  # type: ignore[arg-type]
    await asyncio.sleep(0.5)
    await stream.close()
    most = STDERR_BYTES_PER_S * (time.monotonic() - began) + 2**16
    assert 0 < flood.read_bytes <= most
    assert set(stream.stderr_tail) == {"again and again"}


async def _close() -> None:
    return
