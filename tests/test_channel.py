"""One channel: framing, order, bounds, and an answer to every request."""

import asyncio
import os
import socket
import tracemalloc
from collections.abc import AsyncIterator, Coroutine
from typing import Any

import pytest

from gputui.errors import HeadError, ProtocolError
from gputui.model.bounds import LAST_LINE_CHARS, LAST_LINES
from gputui.model.readings import DeviceReading, HostReading
from gputui.process.background import Background
from gputui.protocol.agent import MARKER, FromAgent, Ping, Pong, Telemetry, ToAgent, Trouble
from gputui.protocol.channel import MAX_FLOODS
from gputui.protocol.frontend import Done, FromFrontend, Restart, Stop, ToFrontend
from gputui.protocol.shared import FollowLogs, LogLines, Refused
from gputui.protocol.streams import (
    LEAST_BYTES,
    MemoryStream,
    SocketStream,
    deflating,
    memory_streams,
)
from gputui.protocol.typed_codec import TypedChannel, encode
from tests.channels import memory_pair

AnyChannel = TypedChannel[Any, Any]
BIG = LogLines("w", ("x" * 8_000,) * 20, 0.0)
"""More than what a stream takes before a channel waits."""


def telemetry(at: float) -> Telemetry:
    return Telemetry(at, HostReading(), (), ())


class Slow(MemoryStream):
    """A stream whose other end reads only once it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.reading = asyncio.Event()

    async def drain(self) -> None:
        await self.reading.wait()


@pytest.fixture
async def slow() -> AsyncIterator[tuple[AnyChannel, AnyChannel, asyncio.Event]]:
    """A sender, its receiver, and the event that lets the sender go on after its first line."""
    one, other = Slow(), MemoryStream()
    one.peer, other.peer = other, one
    sender = TypedChannel[Any, Any](one, ToAgent, queue_bytes=1000)
    receiver = TypedChannel[Any, Any](other, FromAgent)
    sender.send(Trouble("first"))
    assert await receiver.receive() == Trouble("first")
    yield sender, receiver, one.reading
    one.reading.set()
    await sender.close()
    await receiver.close()


async def rest(receiver: TypedChannel[Any, Any]) -> list[Any]:
    return [message async for message in receiver]


@pytest.mark.parametrize("size", [1, 3, 7, 1000])
async def test_messages_arrive_however_the_bytes_are_cut(size: int) -> None:
    data = b"Welcome!\n" + MARKER + b"\n" + encode(Pong(1)) + encode(Pong(22)) + b'["Pong",'
    one, other = memory_streams()
    channel = TypedChannel[ToAgent, FromAgent](one, FromAgent)
    for start in range(0, len(data), size):
        other.write(data[start : start + size])
    await other.close()
    assert await channel.skip_to(MARKER) == b""
    assert await rest(channel) == [Pong(1), Pong(22)]
    assert list(channel.banner) == ["Welcome!"]
    await channel.close()


async def test_state_is_never_left_out_and_the_latest_replaces_the_older(slow: Any) -> None:
    sender, receiver, go_on = slow
    for number in range(5):
        sender.send(telemetry(float(number)))
        sender.send(Trouble(f"{number}"))
    go_on.set()
    await sender.close()
    received = await rest(receiver)
    assert [one.text for one in received if isinstance(one, Trouble)] == list("01234")
    assert [one for one in received if isinstance(one, Telemetry)] == [telemetry(4.0)]


async def test_every_answer_is_sent_however_many_wait(slow: Any) -> None:
    sender, receiver, go_on = slow
    for number in range(5):
        sender.send(Pong(number))
    go_on.set()
    await sender.close()
    assert await rest(receiver) == [Pong(number) for number in range(5)]


async def test_a_flood_is_thinned_and_says_how_much_was_left_out(slow: Any) -> None:
    sender, receiver, go_on = slow
    for number in range(MAX_FLOODS + 7):
        sender.send(LogLines("w", (f"{number}a", f"{number}b"), 0.0))
    go_on.set()
    await sender.close()
    received = await rest(receiver)
    assert len(received) == MAX_FLOODS
    assert received[0] == LogLines("w", ("7a", "7b"), 0.0, dropped=14)
    assert {one.dropped for one in received[1:]} == {0}


async def test_lines_left_out_of_a_worker_that_then_is_silent_are_counted_too(slow: Any) -> None:
    sender, receiver, go_on = slow
    sender.send(LogLines("silent", ("a", "b"), 0.0, dropped=3))
    for number in range(MAX_FLOODS):
        sender.send(LogLines("loud", (f"{number}",), 0.0))
    go_on.set()
    await sender.close()
    assert (await rest(receiver))[-1] == LogLines("silent", (), 0.0, dropped=5)


async def test_a_peer_that_never_reads_is_hung_up_on(slow: Any) -> None:
    sender, receiver, _ = slow
    for _ in range(100):
        sender.send(Trouble("x" * 100))
    assert "peer stopped reading" in sender.broken
    assert await receiver.receive() is None


async def test_one_message_may_be_larger_than_the_queue(slow: Any) -> None:
    sender, receiver, go_on = slow
    sender.send(Trouble("x" * 5000))
    go_on.set()
    assert await receiver.receive() == Trouble("x" * 5000)


async def test_of_lines_before_the_marker_as_much_is_kept_as_a_message_can_show() -> None:
    one, other = memory_streams()
    channel = TypedChannel[Any, Any](one, FromAgent)
    for _ in range(2 * LAST_LINES):
        other.write(b"\xff" * 1_000_000 + b"\n")
    await other.close()
    assert await channel.skip_to(MARKER) is None
    assert [len(line) for line in channel.banner] == [LAST_LINE_CHARS] * LAST_LINES
    await channel.close()


async def test_a_line_that_is_too_long_is_an_error_before_its_end() -> None:
    one, other = memory_streams()
    channel = TypedChannel[ToAgent, FromAgent](one, FromAgent, line_bytes=1000)
    other.write(b"[" * 600)
    other.write(b"[" * 600)
    with pytest.raises(ProtocolError, match="a line of more than 1000 bytes"):
        await channel.receive()
    assert await channel.receive() is None
    await channel.close()


async def test_a_peer_that_sends_without_end_leaves_others_their_turn() -> None:
    to_agent, to_head = memory_pair(FromAgent, ToAgent)
    for number in range(1000):
        to_head.stream.write(encode(Trouble(f"{number}")))
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        other = group.create_task(count())
        for _ in range(1000):
            await to_agent.receive()
        other.cancel()
    assert turns >= 10
    await to_agent.close()
    await to_head.close()


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 2_000])
async def test_a_peer_sends_no_more_than_the_rate_it_is_given(size: int) -> None:
    one, other = memory_streams()
    channel = TypedChannel[Any, Any](one, FromAgent, bytes_per_s=10 * max(LEAST_BYTES, size))
    for _ in range(25):
        other.write(encode(Trouble("x" * size)))
    began = asyncio.get_running_loop().time()
    for _ in range(25):
        await channel.receive()
    assert asyncio.get_running_loop().time() - began >= 1.9
    await channel.close()


async def test_an_aborted_connection_loses_what_was_on_its_way() -> None:
    to_agent, to_head = memory_pair(FromAgent, ToAgent)
    to_head.send(Trouble("lost"))
    to_head.abort()
    assert await to_agent.receive() is None
    to_agent.send(Ping(1))
    await to_agent.close()
    await to_head.close()


async def test_a_message_that_cannot_be_encoded_ends_the_connection_and_says_so() -> None:
    to_agent, to_head = memory_pair(FromAgent, ToAgent)
    to_head.send(Telemetry(0.0, HostReading(object()), (), ()))  # type: ignore[arg-type]
    assert await to_agent.receive() is None
    assert "unsupported" in to_head.broken
    await to_agent.close()
    await to_head.close()


async def test_every_request_is_answered_whatever_happens_to_it() -> None:
    to_frontend, to_head = memory_pair(FromFrontend, ToFrontend)

    async def done(request: int) -> Any:
        return Done(request, "done")

    async def fails(error: Exception) -> Any:
        raise error

    def take(message: Any) -> Coroutine[Any, Any, Any] | None:
        match message:
            case Stop(request=1):
                return done(1)
            case Stop(request=2):
                return fails(HeadError("not now"))
            case Stop():
                return fails(ZeroDivisionError("of ours"))
            case Restart():
                raise KeyError("at once")
        return None

    failures: list[str] = []
    tasks = Background(lambda name, error: failures.append(name))
    for message in (Stop(1), FollowLogs(True), Stop(2), Stop(3), Restart(4, ())):
        to_head.send(message)
    await to_head.flush()
    serving = tasks.start(to_frontend.serve(take, tasks), "serve")
    answers = {one.request: one async for one in until(to_head, 4)}
    assert answers[1] == Done(1, "done")
    assert answers[2] == Refused(2, "not now")
    assert answers[3] == Refused(3, "Stop failed: ZeroDivisionError: of ours")
    assert answers[4] == Refused(4, "Restart failed: KeyError: 'at once'")
    await to_head.close()
    await serving
    assert failures == []
    await to_frontend.close()


async def until(channel: TypedChannel[Any, Any], count: int) -> AsyncIterator[Any]:
    for _ in range(count):
        yield await channel.receive()


async def test_a_peer_that_stops_reading_holds_nobody_up() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        reader, writer = await asyncio.open_unix_connection(sock=ours)
        channel = TypedChannel[Any, Any](SocketStream(reader, writer), ToAgent)
        channel.send(Trouble("x" * 2**22))
        assert not await channel.flush(0.05)
        await asyncio.wait_for(channel.close(0.05), 5)


def gpu_telemetry(used: int) -> Telemetry:
    devices = tuple(DeviceReading(f"GPU-{n}", f"{n}", "H200", 2**37, used + n) for n in range(8))
    return Telemetry(float(used), HostReading(), devices, ())


async def test_a_compressed_channel_says_the_same_in_a_tenth_of_the_bytes() -> None:
    one, other = memory_streams()
    sender, receiver = AnyChannel(one, ToAgent), AnyChannel(other, FromAgent)
    sender.send(Trouble("in the open"))
    assert await receiver.receive() == Trouble("in the open")
    sender.compress()
    receiver.decompress()
    sizes = []
    for used in range(5):
        sender.send(gpu_telemetry(used))
        await sender.flush()
        sizes.append(sum(map(len, other.arrived)))
        assert await receiver.receive() == gpu_telemetry(used)
    assert max(sizes[1:]) < len(encode(gpu_telemetry(0))) / 10
    await sender.close()
    await receiver.close()


async def test_what_came_with_the_line_before_is_decompressed_too() -> None:
    one, other = memory_streams()
    receiver = AnyChannel(other, FromAgent)
    one.write(encode(Pong(1)) + deflating()(encode(Trouble("\n\n" * 99)) + encode(Pong(2))))
    assert await receiver.receive() == Pong(1)
    receiver.decompress()
    assert [await receiver.receive(), await receiver.receive()] == [Trouble("\n\n" * 99), Pong(2)]
    await receiver.close()


async def test_a_few_bytes_that_would_fill_memory_are_refused_as_they_expand() -> None:
    one, other = memory_streams()
    receiver = AnyChannel(other, FromAgent)
    one.write(encode(Pong(1)) + deflating()(b'["Trouble",{"text":"' + b"x" * 2**26))
    assert await receiver.receive() == Pong(1)
    receiver.decompress()
    tracemalloc.start()
    with pytest.raises(ProtocolError, match="a line of more than 1048576 bytes"):
        await receiver.receive()
    assert tracemalloc.get_traced_memory()[1] < 2**23
    tracemalloc.stop()
    await receiver.close()


async def test_what_is_not_compressed_as_it_should_be_is_an_error_of_that_peer() -> None:
    one, other = memory_streams()
    receiver = AnyChannel(other, FromAgent)
    receiver.decompress()
    one.write(encode(Pong(1)))
    with pytest.raises(ProtocolError, match="not compressed as it should be"):
        await receiver.receive()
    await receiver.close()


async def test_a_pipe_that_nobody_reads_any_more_is_closed_without_an_error() -> None:
    source, target = os.pipe(), os.pipe()
    stream = await SocketStream.of_pipes(source[0], target[1])
    os.close(target[0])
    stream.write(b"x")
    stream.write(b"y")
    await asyncio.sleep(0.1)
    await stream.close()
    os.close(source[1])
