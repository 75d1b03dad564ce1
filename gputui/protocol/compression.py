"""One direction of a channel that leaves the machine, compressed with zlib.

All its lines are one stream, which is flushed after each: what a line repeats of those before it
costs next to nothing. What comes is expanded piece by piece, as its reader asks for it, so that
the bounds of a channel hold for what a few bytes expand to.
"""

import zlib

from gputui.errors import ProtocolError

LEVEL = 1
WINDOW_BITS = 14
"""A host's telemetry before this one is within 16 kB; a head keeps as much for each host."""
PIECE_BYTES = 2**16


class Deflated:
    """Compresses line after line."""

    def __init__(self) -> None:
        self._stream = zlib.compressobj(LEVEL, wbits=WINDOW_BITS)

    def __call__(self, line: bytes) -> bytes:
        """Compress a line."""
        return self._stream.compress(line) + self._stream.flush(zlib.Z_SYNC_FLUSH)


class Inflated:
    """Expands what comes."""

    def __init__(self, came: bytes) -> None:
        """Begin with the bytes already received."""
        self._stream = zlib.decompressobj(wbits=WINDOW_BITS)
        self._waiting = came

    def add(self, came: bytes) -> None:
        """Add bytes as they came."""
        self._waiting += came

    def take(self) -> bytes:
        """Return the next piece, b"" when nothing more has come; raises ProtocolError."""
        try:
            piece = self._stream.decompress(self._waiting, PIECE_BYTES)
        except zlib.error as error:
            raise ProtocolError(f"what came is not compressed as it should be: {error}") from error
        self._waiting = self._stream.unconsumed_tail
        return piece
