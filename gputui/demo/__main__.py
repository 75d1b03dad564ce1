"""Serve a simulated cluster on a Unix socket: `python -m gputui.demo 125x8 SOCKET [SEED]`.

Speaks the frontend's side of the protocol as a head does, so that a frontend can be measured
against a cluster of any size without the simulation's cost in its own process. It ends with its
stdin.
"""

import asyncio
import sys
from dataclasses import replace
from pathlib import Path

from gputui.demo import DemoLink, Shape
from gputui.errors import HeadError
from gputui.protocol.codec import decode, encode
from gputui.protocol.frontend import Attach, FromFrontend, Reply, Request
from gputui.protocol.shared import Refused


async def serve(shape: Shape, socket: Path, seed: int) -> None:
    """Serve one simulated cluster for each frontend that connects, until stdin ends."""

    async def meet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = await DemoLink.open(shape, seed=seed, troubles=False)
        decode(await reader.readline(), Attach)
        writer.write(encode(link.attached))
        telling = asyncio.create_task(_tell(link, writer))
        try:
            while line := await reader.readline():
                await _take(link, decode(line, FromFrontend), writer)
        finally:
            await link.close()
            telling.cancel()
            writer.close()

    server = await asyncio.start_unix_server(meet, socket, limit=2**26)
    async with server:
        await asyncio.to_thread(sys.stdin.buffer.read)


async def _tell(link: DemoLink, writer: asyncio.StreamWriter) -> None:
    async for message in link.messages():
        writer.write(encode(message))
        await writer.drain()


async def _take(link: DemoLink, message: FromFrontend, writer: asyncio.StreamWriter) -> None:
    if not isinstance(message, Request):
        await link.send(message)
        return
    reply: Reply | Refused
    try:
        reply = await link.request(message)
    except HeadError as error:
        reply = Refused(message.request, str(error))
    writer.write(encode(replace(reply, request=message.request)))


if __name__ == "__main__":
    size, path, *rest = sys.argv[1:]
    asyncio.run(serve(Shape.parse(size), Path(path), int(rest[0]) if rest else 0))
