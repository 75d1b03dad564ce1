"""The protocol: what goes over each link, and which way."""

import inspect
import re
import typing
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from types import ModuleType
from typing import Any

import pytest

from gputui.errors import ProtocolError
from gputui.model.bounds import Bounds, Length
from gputui.model.readings import DeviceReading, HostReading
from gputui.model.snapshot import RunState, RunStatus
from gputui.protocol import agent, codec, forking, frontend, scheduler, starter
from gputui.protocol.codec import apart, hints_of
from gputui.protocol.typed_codec import decode, encode

DIRECTIONS = {
    agent: agent.ToAgent | agent.FromAgent,
    frontend: frontend.ToFrontend | frontend.FromFrontend,
    scheduler: scheduler.ToScheduler | scheduler.FromScheduler,
    forking: forking.ToForkserver | forking.FromForkserver | forking.FromWorker,
    starter: starter.ToStarter | starter.ConfigureHead | starter.Keep,
}


@pytest.mark.parametrize("link", DIRECTIONS, ids=lambda link: link.__name__)
def test_every_message_goes_one_way_or_is_part_of_one_that_does(link: ModuleType) -> None:
    sent = set(typing.get_args(DIRECTIONS[link]))
    parts = {part for kind in sent for field in fields(kind) for part in _inside(field.type)}
    parts |= {base for kind in sent for base in kind.__mro__}
    defined = {kind for _, kind in inspect.getmembers(link, is_dataclass)}
    assert {kind for kind in defined if kind.__module__ == link.__name__} <= sent | parts


@pytest.mark.parametrize("link", DIRECTIONS, ids=lambda link: link.__name__)
def test_no_two_messages_of_a_link_have_one_name(link: ModuleType) -> None:
    names = [kind.__name__ for kind in typing.get_args(DIRECTIONS[link])]
    assert len(names) == len(set(names))


def test_a_value_arrives_as_it_was_sent() -> None:
    started = agent.WorkerExited("h:gpu0", "signal", "", 0.5, False)
    assert decode(encode(started), agent.FromAgent) == started


def test_a_message_of_another_link_is_none() -> None:
    with pytest.raises(ProtocolError, match="not a message of this version"):
        decode(encode(frontend.Stop(1)), agent.ToAgent)


def _inside(hint: Any) -> set[type]:
    """Return the dataclasses that a field's type names."""
    if is_dataclass(hint):
        return {typing.cast(type, hint)}
    return set().union(*map(_inside, typing.get_args(hint)))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b'["Pong",{"number":"seven"}]', "Expected `int`, got `str` - at `$.number`"),
        (b'["Pong",{"number":true}]', "got `bool`"),
        (b'["Pong",{"number":7.5}]', "got `float`"),
        (b'["Pong",{"number":null}]', "got `null`"),
        (b'["Pong",{"number":-1}]', ">= 0"),
        (b'["Pong",{"number":1' + b"0" * 30 + b"}]", "no Pong"),
        (b'["Pong",{}]', "missing required field `number`"),
        (b'["Pong",[7]]', "Expected `object`"),
        (b'["Pong",7', "not a message"),
        (b'["Pong",{"number":7},8]', "malformed"),
        (b'["Trouble",{"text":7}]', "Expected `str`"),
        (b'["Trouble",{"text":"\\ud800"}]', "no Trouble"),
        (b'["Trouble",{"text":"\xed\xa0\x8f"}]', "can't decode"),
        (b'["LogLines",{"worker":"w","lines":[],"at":NaN}]', "malformed"),
        (b'["LogLines",{"worker":"w","lines":[],"at":1e999}]', "out of range"),
        (b'["LogLines",{"worker":"w","lines":["a"],"at":1e17}]', "at `$.at`"),
        (b'["LogLines",{"worker":"w","lines":["a"],"at":-1.0}]', "at `$.at`"),
        (b'["LogLines",{"worker":"w","lines":["a",7],"at":0}]', "at `$.lines[1]`"),
        (b'["LogLines",{"worker":"w","lines":"abc","at":0}]', "Expected `array`"),
        (b'["Telemetry",{"at":0,"host":[],"devices":[],"workers":[]}]', "Expected `object`"),
        (b'["Pong",{"number":' + b"[" * 100_000, "not a message"),
        (b'["Pong",{"x":' + b"[" * 100_000 + b"]", "recursion"),
        (b'{"Pong": 1}', "not a message"),
        (b"\xff\xfe", "not a message"),
    ],
)
def test_what_is_not_of_its_declared_type_is_an_error_of_that_peer(line: bytes, words: str) -> None:
    with pytest.raises(ProtocolError, match=re.escape(words)):
        decode(line, agent.FromAgent)


def test_an_integer_may_stand_for_a_float_and_null_where_it_is_declared() -> None:
    lines = decode(b'["LogLines",{"worker":"w","lines":[],"at":3}]', agent.FromAgent)
    assert lines == agent.LogLines("w", (), 3.0)
    line = b'["WorkerReady",{"name":"w","address":"a","device_uuid":null}]'
    assert decode(line, agent.FromAgent).device_uuid is None


@pytest.mark.parametrize("kind", [agent.Ping, agent.StartWorkers, agent.Configure])
def test_an_agent_refuses_what_is_of_another_type(kind: type) -> None:
    name = kind.__name__.encode()
    for body in (b"7", b"{}", b"[]", b'{"number":"7"}', b'{"nothing":7}', b"{" * 99_999):
        with pytest.raises(ProtocolError, match="not a message of this version"):
            codec.decode(b'["%b",%b]' % (name, body), agent.ToAgent)


def test_text_that_is_no_unicode_is_sent_readable() -> None:
    for write in (encode, codec.encode):
        sent = write(agent.Trouble("file \udcff"))
        assert decode(sent, agent.FromAgent) == agent.Trouble("file ?")
        emoji = agent.Trouble("all good 👍 99999999999999999999")
        assert decode(write(emoji), agent.FromAgent) == emoji


def test_each_item_of_a_tuple_is_of_its_own_type_and_bounds() -> None:
    folder = "/home/ann/caf\udce9"
    timed = RunStatus("a", "svd", (), RunState.DONE, 1.0, timings=(("computing", 0.5),), cwd=folder)
    sent = frontend.ReportRun(timed)
    readable = frontend.ReportRun(replace(timed, cwd="/home/ann/caf?"))
    assert decode(encode(sent), frontend.FromFrontend) == readable
    sized = frontend.Settled(1, (), (), (), worker_size=(8, 2**36))
    for read in (decode, codec.decode):
        assert read(codec.encode(sized), frontend.ToFrontend) == sized


def test_an_agent_keeps_to_the_bounds_that_its_head_checks() -> None:
    gpu = DeviceReading("GPU-a", "0", "x" * 9_999, power_w=float("nan"), temperature_c=255.5)
    absurd = replace(gpu, uuid="GPU-b", utilization_percent=-166.0, memory_used_bytes=2**63)
    host = HostReading(cpu_percent=100.0, load_1m=float("inf"))
    sent = agent.Telemetry(-5.0, host, (gpu, absurd) * 400, ())
    arrived = decode(codec.encode(sent), agent.FromAgent)
    assert (arrived.at, len(arrived.devices)) == (0.0, 512)
    assert arrived.host == HostReading(cpu_percent=100.0)
    first, second = arrived.devices[:2]
    assert (len(first.name), first.power_w, first.temperature_c) == (512, None, 255.5)
    assert (second.utilization_percent, second.memory_used_bytes) == (None, None)


def bounds_missing(kind: Any, seen: set[Any]) -> Iterator[str]:
    """Yield each number, text and tuple within a message that has no bounds."""
    if kind in seen:
        return
    seen.add(kind)
    for name, hint in hints_of(kind).items():
        yield from (f"{kind.__name__}.{name}: {part}" for part in _unbounded(hint, seen))


def _unbounded(hint: Any, seen: set[Any]) -> Iterator[Any]:
    hint, bounds, _ = apart(hint)
    if is_dataclass(hint):
        yield from bounds_missing(hint, seen)
    elif typing.get_origin(hint) is tuple:
        parts = typing.get_args(hint)
        if parts[-1] is ... and not isinstance(bounds, Length):
            yield hint
        for part in parts:
            yield from () if part is ... else _unbounded(part, seen)
    elif (hint is str and not isinstance(bounds, Length)) or (
        hint in (int, float) and not isinstance(bounds, Bounds)
    ):
        yield hint


def test_every_number_text_and_tuple_of_every_message_has_bounds() -> None:
    kinds = [kind for union in DIRECTIONS.values() for kind in typing.get_args(union)]
    seen: set[Any] = set()
    assert [part for kind in kinds for part in bounds_missing(kind, seen)] == []
    assert len(seen) > 70
