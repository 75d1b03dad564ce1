"""The protocol: what goes over each link, and which way."""

import inspect
import typing
from dataclasses import fields, is_dataclass
from types import ModuleType
from typing import Any

import pytest

from gputui.errors import ProtocolError
from gputui.protocol import agent, frontend, scheduler, starter
from gputui.protocol.codec import decode, encode

DIRECTIONS = {
    agent: agent.ToAgent | agent.FromAgent,
    frontend: frontend.ToFrontend | frontend.FromFrontend,
    scheduler: scheduler.ToScheduler | scheduler.FromScheduler,
    starter: starter.ToStarter | starter.ConfigureHead,
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
