"""The lease: how long an agent lives without a message from its head."""

import asyncio
import time

HELD_UP_S = 0.2
"""A process that wakes so much later than it asked for was held up."""

GRACE_S = 2.0
"""How long it then has to read what its head sent in that time."""


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
            if time.monotonic() - due > HELD_UP_S:
                grace_s = min(GRACE_S, self._length_s)
                self._renewed_at = time.monotonic() - self._length_s + grace_s
