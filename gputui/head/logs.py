"""What workers print, passed on to the faces that want it; followed only while one does."""

from collections import deque
from collections.abc import Callable, Collection
from dataclasses import replace

from gputui.head.door import Face
from gputui.protocol.codec import encode
from gputui.protocol.shared import LogLines

KEPT = 1_000
"""Messages, for a face that begins to follow while another one does."""


class LogRelay:
    """Passes `LogLines` on."""

    def __init__(self, faces: Collection[Face], follow: Callable[[bool], None]) -> None:
        self._faces = faces
        self._follow = follow
        self._kept: deque[LogLines] = deque(maxlen=KEPT)

    def subscribe(self, face: Face, on: bool) -> None:
        """Send a face what workers print from now on, and what is kept; or stop."""
        followed = self._followed
        if on and followed and not face.logs:
            for lines in self._kept:
                face.send_log(encode(replace(lines, earlier=True)))
        face.logs = on
        self._settle(followed)

    def face_left(self, face: Face) -> None:
        """Stop following when nobody is left who wants it."""
        if face.logs:
            face.logs = False
            self._settle(True)

    def printed(self, lines: LogLines) -> None:
        """Pass lines on."""
        line = encode(lines)
        self._kept.append(lines)
        for face in self._faces:
            if face.logs:
                face.send_log(line)

    @property
    def _followed(self) -> bool:
        return any(face.logs for face in self._faces)

    def _settle(self, before: bool) -> None:
        if self._followed != before:
            self._kept.clear()
            self._follow(not before)
