"""How long an agent lives without word of its head."""

import asyncio
import time


class Lease:
    """Runs out when it was not renewed for its length.

    Time in which this process was held up (stopped, or its machine suspended) does not count: what
    its head sent meanwhile is still unread.
    """

    def __init__(self, length_s: float) -> None:
        self._length_s = length_s
        self._renewed_at = time.monotonic()

    def renew(self) -> None:
        """Begin the lease again."""
        self._renewed_at = time.monotonic()

    async def run_out(self) -> None:
        """Return when the lease has run out."""
        while (left_s := self._renewed_at + self._length_s - time.monotonic()) > 0:
            due = time.monotonic() + left_s
            await asyncio.sleep(left_s)
            held_up_s = time.monotonic() - due
            self._renewed_at = min(self._renewed_at + held_up_s, time.monotonic())
