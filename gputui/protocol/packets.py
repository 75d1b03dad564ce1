"""Messages with file descriptors, over a Unix socket that keeps packets apart.

A packet is a message, as the codec writes it; so there are no lines to put together. Used between
an agent and its forkserver, which has no event loop.
"""

import array
import os
import socket
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from gputui.errors import ProtocolError
from gputui.protocol.codec import decode, encode

PACKET_BYTES = 2**19
MAX_DESCRIPTORS = 2

Sent = TypeVar("Sent")
Received = TypeVar("Received")


def packet_sockets() -> tuple[socket.socket, socket.socket]:
    """Return two connected sockets that take packets of `PACKET_BYTES`."""
    pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in pair:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, PACKET_BYTES)
    return pair


class PacketChannel(Generic[Sent, Received]):
    """One end; it blocks or not as its socket does."""

    def __init__(self, connection: socket.socket, receives: Any) -> None:
        self._connection = connection
        self._receives = receives

    def fileno(self) -> int:
        """Return the descriptor, to wait for it."""
        return self._connection.fileno()

    def send(self, message: Sent, descriptors: Sequence[int] = ()) -> None:
        """Send a message with copies of descriptors; raises OSError, also when it would block."""
        data = encode(message)
        if len(data) > PACKET_BYTES:
            raise ProtocolError(f"a message of {len(data)} bytes")
        socket.send_fds(self._connection, [data], list(descriptors))

    def receive(self) -> tuple[Received, list[int]] | None:
        """Return the next message and its descriptors, which close on exec; None at the end.

        Raises ProtocolError for what is no message, BlockingIOError when nothing has come yet.
        """
        room = socket.CMSG_SPACE(MAX_DESCRIPTORS * array.array("i").itemsize)
        try:
            data, ancillary, flags, _ = self._connection.recvmsg(
                PACKET_BYTES, room, socket.MSG_CMSG_CLOEXEC
            )
        except BlockingIOError:
            raise
        except OSError:
            return None
        descriptors = _descriptors(ancillary)
        if not data:
            return None
        try:
            if flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
                raise ProtocolError("a packet that was cut short")
            return decode(data, self._receives), descriptors
        except ProtocolError:
            for descriptor in descriptors:
                os.close(descriptor)
            raise

    def close(self) -> None:
        """Close this end."""
        self._connection.close()


def _descriptors(ancillary: Sequence[tuple[int, int, bytes]]) -> list[int]:
    """Return the descriptors that came with a packet."""
    found = array.array("i")
    for level, kind, content in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            found.frombytes(content[: len(content) - len(content) % found.itemsize])
    return list(found)
