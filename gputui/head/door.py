"""The head's door: a Unix socket for faces, 0600 in a 0700 folder; JSON lines both ways.

Each face has a queue of its own, so that one that stops reading holds up nobody: a snapshot
takes the place of the one before, log lines are left out, and past all bounds it is let go.
"""

import asyncio
import contextlib
import json
import logging
import os
from collections import deque
from pathlib import Path
from typing import Protocol

from gputui.errors import ProtocolError
from gputui.protocol import VERSION
from gputui.protocol.codec import MAX_LINE_BYTES, decode, encode
from gputui.protocol.face import Attach, Attached, FromFace, ToFace
from gputui.protocol.shared import Refused

logger = logging.getLogger(__name__)

ATTACH_S = 10.0
"""How long a connection may take to say who it is."""
MAX_WAITING = 20_000
"""Messages that a face may leave unread: all events kept, twice."""
MAX_LOGS_WAITING = 1_000


class FaceListener(Protocol):
    """What the head does for faces."""

    def face_attached(self, face: "Face") -> Attached:
        """Take a face in, and return what it needs to know first."""

    def face_settled(self, face: "Face") -> None:
        """Send a face what it must see of the past: it has been told it is attached."""

    def message_taken(self, face: "Face", message: FromFace) -> None:
        """Begin to carry out what a face asks."""

    def face_left(self, face: "Face") -> None:
        """A face is gone."""


class Face:
    """One attached face, and what is yet to be sent to it."""

    def __init__(self, attach: Attach, writer: asyncio.StreamWriter) -> None:
        self.kind = attach.face
        self.snapshots = attach.snapshots
        self.logs = False
        self._writer = writer
        self._waiting: deque[bytes] = deque()
        self._snapshot: bytes | None = None
        self._work = asyncio.Event()
        self._ending = False
        self._task = asyncio.create_task(self._write(), name=f"face {self.kind}")

    def send(self, message: ToFace) -> None:
        """Send a message without waiting."""
        self.send_line(encode(message))

    def send_line(self, line: bytes) -> None:
        """Send an encoded message without waiting."""
        if len(self._waiting) >= MAX_WAITING:
            logger.warning("a face (%s) reads nothing any more: let go", self.kind)
            self._writer.transport.abort()
            return
        self._waiting.append(line)
        self._work.set()

    def send_log(self, line: bytes) -> None:
        """Send encoded log lines, unless it has many unread already."""
        if len(self._waiting) < MAX_LOGS_WAITING:
            self.send_line(line)

    def send_snapshot(self, line: bytes) -> None:
        """Send an encoded snapshot in place of one that has not gone out yet."""
        self._snapshot = line
        self._work.set()

    async def finish(self, bound_s: float) -> None:
        """Send what waits, and close."""
        self._ending = True
        self._work.set()
        await asyncio.wait({self._task}, timeout=bound_s)
        self.abort()

    def abort(self) -> None:
        """Close at once."""
        self._task.cancel()
        self._writer.close()

    async def _write(self) -> None:
        while not (self._ending and not self._waiting and self._snapshot is None):
            await self._work.wait()
            self._work.clear()
            with contextlib.suppress(ConnectionError):
                while line := self._next():
                    self._writer.write(line)
                    await self._writer.drain()

    def _next(self) -> bytes | None:
        if self._waiting:
            return self._waiting.popleft()
        line, self._snapshot = self._snapshot, None
        return line


class Door:
    """Listens for faces, and keeps those that are attached."""

    def __init__(self, path: Path, listener: FaceListener) -> None:
        self.path = path
        self.faces: set[Face] = set()
        self._listener = listener
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        """Begin to listen."""
        before = os.umask(0o177)
        try:
            self._server = await asyncio.start_unix_server(
                self._serve, self.path, limit=MAX_LINE_BYTES
            )
        finally:
            os.umask(before)

    async def close(self, last: ToFace, bound_s: float = 1.0) -> None:
        """Send every face the last message, and let all go."""
        if self._server is not None:
            self._server.close()
        self.path.unlink(missing_ok=True)
        for face in self.faces:
            face.send(last)
        await asyncio.gather(*(face.finish(bound_s) for face in self.faces))

    def broadcast(self, message: ToFace) -> None:
        """Send a message to every face that looks on, or has a run that it happens to."""
        line: bytes | None = None
        for face in self.faces:
            if face.snapshots or face.kind == "run":
                line = line or encode(message)
                face.send_line(line)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        face: Face | None = None
        try:
            async with asyncio.timeout(ATTACH_S):
                first = await reader.readline()
            if refusal := _refusal(first):
                writer.write(encode(Refused(0, refusal)))
                await writer.drain()
                return
            face = Face(decode(first, Attach), writer)
            attached = self._listener.face_attached(face)
            face.send(attached)
            self.faces.add(face)
            self._listener.face_settled(face)
            while line := await reader.readline():
                self._listener.message_taken(face, decode(line, FromFace))
        except (ProtocolError, ValueError) as error:
            logger.warning("a face sent what is no message: %s", error)
        except (ConnectionError, TimeoutError):
            logger.info("a face went away")
        finally:
            self._let_go(face, writer)

    def _let_go(self, face: Face | None, writer: asyncio.StreamWriter) -> None:
        if face in self.faces:
            assert face is not None
            self.faces.remove(face)
            self._listener.face_left(face)
            face.abort()
        else:
            writer.close()


def _refusal(line: bytes) -> str:
    """Return why a face is turned away by its first line; "" when it is not.

    That line begins alike in every version: its name, and the version.
    """
    match json.loads(line or b"null"):
        case ["Attach", int(version), *_]:
            if version == VERSION:
                return ""
            return (
                f"this cluster's head speaks version {VERSION} of the protocol, and this face "
                f"{version}: use the gputui that started the cluster, or start it anew"
            )
    return "the first message must be Attach"
