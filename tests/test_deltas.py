"""What is sent again and again goes as changes: nothing is lost, little is sent, all is checked."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from operator import attrgetter
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from gputui.errors import ProtocolError
from gputui.model.readings import DeviceProcess, DeviceReading, HostReading, Interconnect, Owner
from gputui.protocol.agent import FromAgent, Telemetry, ToAgent, WorkerReading
from gputui.protocol.channel import LINE_BYTES, Channel
from gputui.protocol.deltas import Incoming
from gputui.protocol.outgoing import Outgoing, Prepared
from gputui.protocol.streams import MemoryStream, memory_streams
from tests.fuzzing.seeds import repeated
from tests.fuzzing.shapes import one_wrong_in, value_of
from tests.fuzzing.targets import TARGETS

some = settings(
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    database=None,
    phases=(Phase.generate,),
)
GPU = DeviceReading(
    "GPU-a",
    "0",
    "NVIDIA H200",
    2**37,
    2**36,
    50.0,
    processes=(DeviceProcess(7, Owner.OURS, "me", "gputui worker", 2**35),),
    interconnect=Interconnect(18, 4, 9e11, ("1",)),
)
OTHER = replace(GPU, uuid="GPU-b", label="1", processes=(), interconnect=None)


def telemetry(*devices: DeviceReading, at: float = 0.0, used: int = 0) -> Telemetry:
    workers = tuple(WorkerReading(f"h:gpu{device.label}", 99.0, 2**30, 40) for device in devices)
    return Telemetry(at, HostReading(memory_used_bytes=used), devices, workers)


class Link:
    """A queue, and what takes its lines."""

    def __init__(self, receives: Any = FromAgent, max_bytes: int = LINE_BYTES) -> None:
        self.outgoing = Outgoing(2**20, 10)
        self.incoming = Incoming(receives, max_bytes)
        self.line = b""

    def carry(self, message: object) -> Any:
        self.outgoing.put(message)
        line = self.outgoing.pop()
        assert line is not None
        self.line = line
        return self.incoming.decode(line)


@pytest.mark.parametrize("kind", repeated(), ids=attrgetter("__name__"))
@settings(some, max_examples=5)
@given(data=st.data())
def test_any_messages_in_a_row_arrive_as_they_were(kind: type, data: st.DataObject) -> None:
    link = Link(kind)
    for message in data.draw(st.lists(value_of(kind), min_size=2, max_size=3)):
        assert link.carry(message) == message


@settings(some, max_examples=100)
@given(data=st.data())
def test_changes_with_something_wrong_are_an_error_of_that_peer(data: st.DataObject) -> None:
    link = Link()
    link.carry(telemetry(GPU, OTHER))
    whole = link.line
    link.carry(replace(telemetry(GPU, at=1.0), workers=()))
    assert link.line.startswith(b'["Changes","Telemetry"')
    TARGETS["deltas"](whole + data.draw(one_wrong_in(link.line)))


def test_what_did_not_change_is_not_sent() -> None:
    link = Link()
    link.carry(telemetry(GPU, OTHER))
    assert link.carry(telemetry(GPU, replace(OTHER, power_w=400.0), at=1.0)).devices[0] == GPU
    _, _, at, (_, power) = json.loads(link.line)
    assert at == [0, [1.0]]
    assert power == [None, 400.0]


def test_of_a_long_column_only_the_rows_that_changed_go() -> None:
    link = Link()
    devices = tuple(replace(GPU, uuid=f"GPU-{number}") for number in range(100))
    link.carry(telemetry(*devices))
    changed = (*devices[:70], replace(devices[70], power_w=1.0), *devices[71:])
    assert link.carry(telemetry(*changed)).devices == changed
    assert json.loads(link.line)[2][1:] == [[70], [1.0]]


def test_a_gpu_that_appears_or_vanishes_is_sent_whole() -> None:
    link = Link()
    for devices in [(GPU,), (GPU, OTHER), (OTHER,), (), (OTHER, GPU)]:
        assert link.carry(telemetry(*devices)).devices == devices


def test_two_gpus_that_change_places_are_each_whole() -> None:
    link = Link()
    link.carry(telemetry(GPU, OTHER))
    assert link.carry(telemetry(OTHER, GPU)).devices == (OTHER, GPU)


class Slow(MemoryStream):
    """A stream that takes a line, and the next once it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.lets = asyncio.Event()

    async def drain(self) -> None:
        await self.lets.wait()
        self.lets.clear()


@pytest.fixture
async def slow() -> AsyncIterator[tuple[Channel[Any, Any], Channel[Any, Any], asyncio.Event]]:
    """A sender, its receiver, and the event that lets the sender write another line."""
    one, other = Slow(), MemoryStream()
    one.peer, other.peer = other, one
    sender = Channel[Any, Any](one, ToAgent)
    receiver = Channel[Any, Any](other, FromAgent)
    yield sender, receiver, one.lets
    sender.abort()
    one.lets.set()
    await sender.close()
    await receiver.close()


async def test_a_change_in_a_message_that_was_replaced_while_it_waited_is_not_lost(
    slow: Any,
) -> None:
    sender, receiver, lets = slow
    sender.send(telemetry(GPU))
    assert await receiver.receive() == telemetry(GPU)
    sender.send(telemetry(replace(GPU, power_w=1.0), at=1.0, used=5))
    sender.send(last := telemetry(replace(GPU, power_w=1.0), at=2.0, used=5))
    lets.set()
    assert await receiver.receive() == last


async def test_a_message_for_many_reaches_each_whatever_it_missed(slow: Any) -> None:
    sender, receiver, lets = slow
    one, other = memory_streams()
    quick, quick_receiver = Channel[Any, Any](one, ToAgent), Channel[Any, Any](other, FromAgent)
    messages = [telemetry(replace(GPU, power_w=float(n)), at=float(n // 2)) for n in range(4)]
    for message in messages:
        prepared = Prepared(message)
        sender.send(prepared)
        quick.send(prepared)
        assert await quick_receiver.receive() == message
    assert await receiver.receive() == messages[0]
    lets.set()
    assert await receiver.receive() == messages[-1]
    await quick.close()
    await quick_receiver.close()


async def test_a_new_connection_begins_with_the_whole_message() -> None:
    prepared = Prepared(telemetry(GPU))
    for _ in range(2):
        one, other = memory_streams()
        sender, receiver = Channel[Any, Any](one, ToAgent), Channel[Any, Any](other, FromAgent)
        sender.send(prepared)
        assert await receiver.receive() == telemetry(GPU)
        await sender.close()
        await receiver.close()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (b'["Changes","Telemetry",[0,["noon"]]]', "Telemetry.at is str, not float"),
        (b'["Changes","Telemetry",[0,[1e17]]]', "no changes"),
        (b'["Changes","Telemetry",[0,[1.0,2.0]]]', "no changes"),
        (b'["Changes","Telemetry",[0,1.0]]', "no changes"),
        (b'["Changes","Telemetry",[0,[1],[1.0]]]', "no changes"),
        (b'["Changes","Telemetry",[0,[-1],[1.0]]]', "no changes"),
        (b'["Changes","Telemetry",[0,["0"],[1.0]]]', "no changes"),
        (b'["Changes","Telemetry",[0,[0],[1.0,2.0]]]', "no changes"),
        (b'["Changes","Telemetry",[0,[0],[0],[1.0]]]', "no changes"),
        (b'["Changes","Telemetry",[-1,[1.0]]]', "no changes"),
        (b'["Changes","Telemetry",[1,[null]]]', "no changes"),
        (b'["Changes","Telemetry",[9999,[1.0]]]', "no changes"),
        (b'["Changes","Telemetry",[[0],[1.0]]]', "no changes"),
        (b'["Changes","Telemetry",[2,[2]]]', "no changes"),
        (b'["Changes","Telemetry",[2,[9223372036854775807]]]', "no changes"),
        (b'["Changes","Telemetry",[2,[-1]]]', "no changes"),
        (b'["Changes","Telemetry",[2,[true]]]', "no changes"),
        (b'["Changes","Telemetry",7]', "no changes"),
        (b'["Changes","Telemetry",[0,[NaN]]]', "no changes"),
        (b'["Changes","Counts",[0,[1.0]]]', "no changes"),
        (b'["Changes",["Telemetry"]]', "no changes"),
        (b'["Changes"]', "no changes"),
        (b'["Changes"', "no changes"),
    ],
)
def test_wrong_changes_are_refused_and_so_is_all_that_builds_on_them(
    changes: bytes, words: str
) -> None:
    link = Link()
    link.carry(telemetry(GPU))
    with pytest.raises(ProtocolError, match=words):
        link.incoming.decode(changes)
    with pytest.raises(ProtocolError, match="no changes"):
        link.incoming.decode(b'["Changes","Telemetry",[0,[1.0]]]')


def test_changes_before_any_message_are_refused() -> None:
    with pytest.raises(ProtocolError, match="no changes"):
        Link().incoming.decode(b'["Changes","Telemetry",[0,[1.0]]]')


def test_a_little_line_is_charged_for_the_large_message_that_it_makes() -> None:
    link = Link()
    devices = tuple(replace(GPU, uuid=f"GPU-{number}") for number in range(100))
    link.carry(telemetry(*devices))
    whole = len(link.line)
    link.carry(telemetry(*devices, at=1.0))
    assert len(link.line) < 100
    assert whole / 4 < link.incoming.size < whole * 2


def test_no_message_grows_by_its_changes_past_the_bound_of_a_line() -> None:
    link = Link(max_bytes=1800)
    link.carry(telemetry(GPU))
    link.carry(telemetry(larger := replace(GPU, name="x" * 1000)))
    with pytest.raises(ProtocolError, match="a Telemetry of more than 1800 bytes"):
        link.carry(telemetry(replace(larger, uuid="x" * 1000)))
