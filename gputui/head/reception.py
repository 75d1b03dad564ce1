"""What the head does for the faces at its door: takes them in, shows them the past, hears them."""

import logging
from typing import TYPE_CHECKING

from gputui.head.door import Face
from gputui.head.requests import carry_out
from gputui.protocol.face import (
    Answer,
    Attached,
    EventHappened,
    FromFace,
    ReportRun,
    Request,
    SubscribeLogs,
)

if TYPE_CHECKING:
    from gputui.head.head import Head

logger = logging.getLogger(__name__)


class Reception:
    """The door's listener."""

    def __init__(self, head: "Head") -> None:
        self._head = head

    def face_attached(self, face: Face) -> Attached:
        """Give a face what it needs to take part."""
        return self._head.attached()

    def face_settled(self, face: Face) -> None:
        """Send a face that looks on what happened before it came."""
        head = self._head
        if face.snapshots:
            for event in head.journal.events:
                face.send(EventHappened(event))
            for asked in head.questions.open:
                face.send(asked)
            head.view.wanted(True)

    def face_left(self, face: Face) -> None:
        """Forget what the face wanted."""
        head = self._head
        head.runs.face_left(face)
        head.logs.face_left(face)
        head.view.wanted(any(face.snapshots for face in head.door.faces))

    def message_taken(self, face: Face, message: FromFace) -> None:
        """Carry out what a face asks."""
        head = self._head
        match message:
            case ReportRun():
                head.runs.report(face, message)
            case SubscribeLogs(on):
                head.logs.subscribe(face, on)
            case Answer():
                head.questions.take(message)
            case _ if isinstance(message, Request):
                head.spawn(self._reply(face, message))
            case _:
                logger.warning("a face sent %s", type(message).__name__)

    async def _reply(self, face: Face, request: Request) -> None:
        face.send(await carry_out(self._head, request))
