"""Bytes of a relay into messages, and the one command that starts it over SSH."""

from dataclasses import dataclass, field

import pytest

from gputui.errors import ProtocolError
from gputui.fleet.deploy import remote
from gputui.fleet.session import AgentChannel
from gputui.protocol.agent import MARKER, Ping, Pong
from gputui.protocol.typed_codec import encode


@dataclass
class Chunks:
    """A stream that brings these chunks."""

    chunks: list[bytes]
    written: list[bytes] = field(default_factory=list)
    stderr_tail: tuple[str, ...] = ()

    async def read(self) -> bytes:
        return self.chunks.pop(0) if self.chunks else b""

    def write(self, data: bytes) -> None:
        self.written.append(data)

    async def drain(self) -> None: ...

    async def exit_status(self) -> int | None:
        return 0

    async def close(self) -> None: ...

    def abort(self) -> None: ...


@pytest.mark.parametrize("size", [1, 3, 7, 1000])
async def test_messages_arrive_however_the_bytes_are_cut(size: int) -> None:
    data = b"Welcome!\n" + MARKER + b"\n" + encode(Pong(1)) + encode(Pong(22))
    link = AgentChannel(Chunks([data[i : i + size] for i in range(0, len(data), size)]))
    assert await link.skip_to(MARKER) == b""
    assert [await link.receive() for _ in range(3)] == [Pong(1), Pong(22), None]
    assert link.last_log_lines == ("Welcome!",)


async def test_a_stream_without_the_marker_leaves_what_it_said() -> None:
    link = AgentChannel(Chunks([b"This account is currently not available.\n"]))
    assert await link.skip_to(MARKER) is None
    assert link.last_log_lines == ("This account is currently not available.",)


async def test_a_line_that_is_no_message_is_an_error() -> None:
    with pytest.raises(ProtocolError, match="not a message"):
        await AgentChannel(Chunks([b"Traceback (most recent call last):\n"])).receive()


async def test_a_message_is_sent_as_one_line() -> None:
    stream = Chunks([])
    link = AgentChannel(stream)
    link.send(Ping(7))
    await link.close()
    assert stream.written == [b'["Ping",{"number":7}]\n']


def test_the_command_is_a_constant_that_every_shell_reads_alike() -> None:
    before, start, between, find, after = remote.COMMAND.split("'")
    assert (before, between, after) == ("exec sh -c ", " gputui ", "")
    assert not set(start + find) & set("!\\\n")


def test_an_interpreter_of_two_lines_is_not_sent() -> None:
    with pytest.raises(ValueError, match="a path or a name"):
        remote.first_lines(["python3\nrm -rf x"], "", {})
