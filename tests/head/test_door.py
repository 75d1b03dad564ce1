"""The door: many faces, of which one may be slow."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from gputui.cluster import HeadLink
from gputui.head.door import MAX_LOGS_WAITING, MAX_WAITING, Door, Face
from gputui.protocol import VERSION
from gputui.protocol.codec import encode
from gputui.protocol.face import Attach, Attached, Done, Scale, SchedulerReady, SnapshotTaken
from gputui.protocol.shared import LogLines
from gputui.snapshot import ClusterState, SchedulerState, SchedulerStatus, Snapshot

ATTACHED = Attached(VERSION, "test", "id", 1, "", "", "", "", 0.0)


class Listener:
    """Answers every request, and keeps the faces."""

    def __init__(self) -> None:
        self.faces: list[Face] = []
        self.left: list[Face] = []

    def face_attached(self, face: Face) -> Attached:
        self.faces.append(face)
        return ATTACHED

    def face_settled(self, face: Face) -> None:
        return

    def message_taken(self, face: Face, message: Scale) -> None:
        face.send(Done(message.request, "done"))

    def face_left(self, face: Face) -> None:
        self.left.append(face)


@pytest.fixture
async def door(tmp_path: Path) -> AsyncIterator[tuple[Door, Listener]]:
    listener = Listener()
    door = Door(tmp_path / "door.sock", listener)
    await door.open()
    yield door, listener
    await door.close(SchedulerReady(""), bound_s=0.1)


def stalled_face(door: Door) -> socket.socket:
    """Return a face that says who it is, and then reads nothing."""
    stalled = socket.socket(socket.AF_UNIX)
    stalled.connect(str(door.path))
    stalled.sendall(encode(Attach(VERSION, "screen", True)))
    return stalled


def read_until(connection: socket.socket, mark: bytes) -> bytes:
    received = b""
    while mark not in received:
        received += connection.recv(2**16)
    return received


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.01)


def snapshot(sequence: int) -> Snapshot:
    scheduler = SchedulerStatus(SchedulerState.RUNNING)
    return Snapshot(sequence, 0.0, "test", ClusterState.RUNNING, 0.0, scheduler)


async def test_a_request_is_answered_by_its_number(door: tuple[Door, Listener]) -> None:
    link = await HeadLink.open(door[0].path, face="screen")
    first, second = await asyncio.gather(link.request(Scale(0, 1)), link.request(Scale(0, 2)))
    assert (first.request, second.request) == (1, 2)
    await link.close()


async def test_a_face_that_reads_nothing_holds_up_nobody(door: tuple[Door, Listener]) -> None:
    opened, listener = door
    with stalled_face(opened):
        await until(lambda: listener.faces)
        for _ in range(MAX_WAITING - 1):
            listener.faces[0].send(SchedulerReady("x" * 100))
        link = await HeadLink.open(opened.path, face="screen")
        assert await link.request(Scale(0, 1)) == Done(1, "done")
        await link.close()


async def test_a_face_that_never_reads_again_is_let_go(door: tuple[Door, Listener]) -> None:
    opened, listener = door
    with stalled_face(opened):
        await until(lambda: listener.faces)
        for _ in range(MAX_WAITING + 1):
            listener.faces[0].send(SchedulerReady("x" * 100))
        await until(lambda: listener.left)
        assert not opened.faces


async def test_a_slow_face_misses_log_lines_but_no_event(door: tuple[Door, Listener]) -> None:
    opened, listener = door
    with stalled_face(opened) as stalled:
        await until(lambda: listener.faces)
        for number in range(MAX_LOGS_WAITING * 2):
            listener.faces[0].send_log(encode(LogLines("w", (f"line {number}",), 0.0)))
        listener.faces[0].send(SchedulerReady("last"))
        received = await asyncio.to_thread(read_until, stalled, b"last")
        assert received.count(b"LogLines") == MAX_LOGS_WAITING


async def test_a_face_gets_the_newest_snapshot_only(door: tuple[Door, Listener]) -> None:
    opened, listener = door
    link = await HeadLink.open(opened.path, face="screen", snapshots=True)
    for sequence in range(1, 4):
        listener.faces[0].send_snapshot(encode(SnapshotTaken(snapshot(sequence))))
    async for message in link.messages():
        assert message.snapshot.sequence == 3
        break
    await link.close()


async def test_the_last_message_reaches_a_face_before_the_end(door: tuple[Door, Listener]) -> None:
    link = await HeadLink.open(door[0].path, face="screen")
    await door[0].close(SchedulerReady("the last"))
    assert [message async for message in link.messages()] == [SchedulerReady("the last")]
    await link.close()


async def test_a_line_that_is_no_message_ends_that_face_only(door: tuple[Door, Listener]) -> None:
    opened, _ = door
    reader, writer = await asyncio.open_unix_connection(opened.path)
    writer.write(b"GET / HTTP/1.1\r\n\r\n")
    assert await reader.read() == b""
    writer.close()
    link = await HeadLink.open(opened.path, face="screen")
    assert isinstance(await link.request(Scale(0, 1)), Done)
    await link.close()
