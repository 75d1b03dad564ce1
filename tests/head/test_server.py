"""The server: many frontends, of which one may be slow."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gputui.client.head_connection import HeadConnection
from gputui.head.server import FrontendConnection, FrontendServer
from gputui.model.snapshot import Session
from gputui.protocol.frontend import HELLO, Attach, Attached, Done, Scale, SchedulerReady, Stopped
from gputui.protocol.shared import Credentials
from gputui.protocol.typed_codec import encode
from tests.clusters import until

ATTACHED = Attached("test", "id", 1, 0.0, Credentials("", "", "{}"))


class Listener:
    """Answers every request, and keeps the frontends."""

    def __init__(self) -> None:
        self.frontends: list[FrontendConnection] = []
        self.left: list[FrontendConnection] = []

    def attach(self, frontend: FrontendConnection) -> Attached:
        self.frontends.append(frontend)
        return ATTACHED

    async def answer(self, frontend: FrontendConnection, message: Scale) -> Done:
        return Done(message.request, "done")


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[tuple[FrontendServer, Listener]]:
    listener = Listener()
    server = FrontendServer(
        tmp_path / "server.sock",
        attached=listener.attach,
        settled=lambda frontend: None,
        left=listener.left.append,
    )
    server.received = listener.answer
    await server.open()
    yield server, listener
    await server.close(SchedulerReady(""), bound_s=0.1)


async def test_a_line_that_is_no_message_ends_that_frontend_only(
    server: tuple[FrontendServer, Listener],
) -> None:
    opened, _ = server
    reader, writer = await asyncio.open_unix_connection(opened.path)
    writer.write(b"GET / HTTP/1.1\r\n\r\n")
    assert b"the first message must be Attach" in await reader.read()
    writer.close()
    link = await HeadConnection.open(opened.path, frontend="screen")
    assert isinstance(await link.request(Scale(0, 1)), Done)
    await link.close()


async def test_a_frontend_that_writes_as_the_head_ends_still_reads_why(
    server: tuple[FrontendServer, Listener],
) -> None:
    reader, writer = await asyncio.open_unix_connection(server[0].path)
    writer.write(HELLO + encode(Attach(Session("run"))))
    await until(lambda: server[1].frontends)
    reader._transport.pause_reading()  # it is busy, and its loop reads nothing
    closing = asyncio.create_task(server[0].close(Stopped("the disk is full", True), bound_s=5.0))
    await asyncio.wait([closing], timeout=0.2)
    writer.write(encode(Scale(1, 2)))
    reader._transport.resume_reading()
    assert b"disk is full" in await reader.readuntil(b"disk is full")
    writer.close()
    await closing


async def test_a_head_that_ends_waits_for_no_link_that_has_read_why(
    server: tuple[FrontendServer, Listener],
) -> None:
    link = await HeadConnection.open(server[0].path, frontend="screen")
    async with asyncio.timeout(5):
        await server[0].close(Stopped("enough", False), bound_s=60.0)
    assert [type(message) async for message in link.messages()] == [Stopped]
    await link.close()
