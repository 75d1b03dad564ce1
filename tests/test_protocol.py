"""The protocol: what goes over each link, and which way."""

import inspect
import typing
from dataclasses import fields, is_dataclass
from types import ModuleType
from typing import Any

import pytest

from gputui.errors import ProtocolError
from gputui.protocol import agent, forking, frontend, scheduler, starter
from gputui.protocol.codec import decode, encode
from gputui.protocol.shared import Refused

DIRECTIONS = {
    agent: agent.ToAgent | agent.FromAgent,
    frontend: frontend.ToFrontend | frontend.FromFrontend,
    scheduler: scheduler.ToScheduler | scheduler.FromScheduler,
    forking: forking.ToForkserver | forking.FromForkserver | forking.WorkerReport,
    starter: starter.ToStarter | starter.ConfigureHead | starter.Keep,
}


@pytest.mark.parametrize("link", DIRECTIONS, ids=lambda link: link.__name__)
def test_every_message_goes_one_way_or_is_part_of_one_that_does(link: ModuleType) -> None:
    sent = set(typing.get_args(DIRECTIONS[link]))
    parts = {part for kind in sent for field in fields(kind) for part in _inside(field.type)}
    defined = {kind for _, kind in inspect.getmembers(link, is_dataclass)}
    assert {kind for kind in defined if kind.__module__ == link.__name__} <= sent | parts


@pytest.mark.parametrize("link", DIRECTIONS, ids=lambda link: link.__name__)
def test_no_two_messages_of_a_link_have_one_name(link: ModuleType) -> None:
    names = [kind.__name__ for kind in typing.get_args(DIRECTIONS[link])]
    assert len(names) == len(set(names))


def test_a_value_arrives_as_it_was_sent() -> None:
    started = agent.WorkerExited("h:gpu0", 7, "signal", "", None, 9, ("a", "b"), 0.5, False)
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
        (b'["Pong", ["seven"]]', "Pong.number is list, not int"),
        (b'["Pong", true]', "Pong.number is bool, not int"),
        (b'["Pong", 7.5]', "Pong.number is float, not int"),
        (b'["Pong", null]', "Pong.number is null, not int"),
        (b'["Pong", 1' + b"0" * 30 + b"]", "not a message"),
        (b'["Pong"]', "not a message"),
        (b'["Trouble", 7]', "Trouble.text is int, not str"),
        (b'["Trouble", "\\ud800"]', "not a message"),
        (b'["WorkerReading", "w", NaN, 1, 1]', "not a message"),
        (b'["ForkserverReady", NaN]', "not a message"),
        (b'["ForkserverReady", 1e999]', "not a message"),
        (b'["ForkserverReady", -1E+0309]', "not a message"),
        (b'["ForkserverReady", ' + b"9" * 400 + b".0]", "not a message"),
        (b'["LogLines", "w", ["a"], 1e17, 0, false]', "not a message"),
        (b'["LogLines", "w", ["a"], -1.0, 0, false]', "not a message"),
        (b'["Telemetry", 1e17, [null, null, null, null, null, null, null], [], []]', "not a"),
        (b'["LogLines", "w", ["a", 7], 0.0, 0, false]', "LogLines.lines is list"),
        (b'["LogLines", "w", "abc", 0.0, 0, false]', "LogLines.lines is str"),
        (b'["Telemetry", 0.0, [1, 2], [], []]', "Telemetry.host is list"),
        (b'["Telemetry", 0.0, null, [], []]', "Telemetry.host is null"),
        (b'["Telemetry", 0.0, "12345678", [], []]', "Telemetry.host is str"),
        (b"[" * 100_000, "not a message"),
        (b'{"Pong": 1}', "not a message"),
        (b"\xff\xfe", "not a message"),
    ],
)
def test_what_is_not_of_its_declared_type_is_an_error_of_that_peer(line: bytes, words: str) -> None:
    with pytest.raises(ProtocolError, match=words):
        decode(line, agent.FromAgent)


def test_an_integer_may_stand_for_a_float_and_null_where_it_is_declared() -> None:
    assert decode(b'["ForkserverReady", 3]', agent.FromAgent) == agent.ForkserverReady(3)
    assert decode(b'["WorkerReady", "w", "a", null]', agent.FromAgent).device_uuid is None


def test_a_type_that_was_wrong_once_is_wrong_again() -> None:
    for _ in range(2):
        with pytest.raises(ProtocolError):
            decode(b'["Pong", "7"]', agent.FromAgent)
        assert decode(b'["Pong", 7]', agent.FromAgent) == agent.Pong(7)


def test_text_that_is_no_unicode_is_sent_readable() -> None:
    sent = encode(agent.Trouble("file \udcff"))
    assert decode(sent, agent.FromAgent) == agent.Trouble("file ?")
    emoji = agent.Trouble("all good 👍 99999999999999999999")
    assert decode(encode(emoji), agent.FromAgent) == emoji


def test_half_a_surrogate_pair_is_no_text() -> None:
    line = b'["Refused",1,"\xed\xa0\x8f"]'
    with pytest.raises(ProtocolError):
        decode(line, Refused)
