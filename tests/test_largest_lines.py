"""The work for one line is linear in its length and short, whatever the line says."""

import gc
import time
import typing
from collections.abc import Iterator
from dataclasses import is_dataclass
from enum import StrEnum
from typing import Any

import pytest

from gputui.errors import ProtocolError
from gputui.head.server import LINE_BYTES as FRONTENDS_LINE_BYTES
from gputui.protocol.agent import FromAgent
from gputui.protocol.channel import LINE_BYTES
from gputui.protocol.codec import apart, hints_of
from gputui.protocol.frontend import FromFrontend
from gputui.protocol.scheduler import FromScheduler
from gputui.protocol.typed_codec import decode

BOUND_S = 0.05
FROM_ELSEWHERE = [
    pytest.param(union, kind, line_bytes, id=kind.__name__)
    for union, line_bytes in ((FromAgent, LINE_BYTES), (FromFrontend, FRONTENDS_LINE_BYTES))
    for kind in typing.get_args(union)
]


def largest(kind: Any, size: int) -> Iterator[bytes]:
    """Yield lines of so many bytes that begin as a message does, each with another way to go on."""
    name = kind.__name__.encode()
    for field, hint in hints_of(kind).items():
        for unit in _units(hint):
            before = b'["%b",{%b"%b":' % (name, _others(kind, field), field.encode())
            yield before + _filled(unit, size - len(before) - 3) + b"}]"
    before = b'["%b",{%b"nothing of this":' % (name, _others(kind, ""))
    for unit in (b"[%b]", b'"%b"', b"{%b}"):
        yield before + _filled(unit, size - len(before) - 3) + b"}]"


def _units(hint: Any) -> Iterator[bytes]:
    """Yield what the value of a field may be filled with; %b is where it goes on."""
    hint, _, _ = apart(hint)
    yield from (b'"%b"', b"%b1", b"0.%b1")
    if typing.get_origin(hint) is tuple:
        item = _least(typing.get_args(hint)[0])
        yield from (b"[%b" + item + b"]", b'[%b""]', b"[%b[]]", b"[%b{}]", b"[%bnull]")


def _filled(unit: bytes, size: int) -> bytes:
    """Return a value of about so many bytes, of the unit's items again and again."""
    before, after = unit.split(b"%b")
    item = after[:-1] + b"," if before == b"[" else b"7"
    return before + item * max(0, (size - len(unit)) // len(item)) + after


def _others(kind: Any, without: str) -> bytes:
    """Return the fields that a message needs, but one."""
    needed = [(name, _least(hint)) for name, hint in hints_of(kind).items() if name != without]
    return b"".join(b'"%b":%b,' % (name.encode(), value) for name, value in needed)


def _least(hint: Any) -> bytes:
    """Return the smallest value of a type."""
    hint, _, optional = apart(hint)
    if optional:
        return b"null"
    if is_dataclass(hint):
        parts = [b'"%b":%b' % (n.encode(), _least(part)) for n, part in hints_of(hint).items()]
        return b"{" + b",".join(parts) + b"}"
    if typing.get_origin(hint) is tuple:
        parts = typing.get_args(hint)
        return b"[]" if parts[-1] is ... else b"[" + b",".join(map(_least, parts)) + b"]"
    if issubclass(hint, StrEnum):
        return b'"%b"' % next(iter(hint)).value.encode()
    return {str: b'""', bool: b"false"}.get(hint, b"0")


def took_s(line: bytes, union: Any) -> float:
    """Return how much CPU a line takes to decode or refuse, the least of three times."""
    times = []
    gc.collect()
    for _ in range(3):
        began = time.thread_time()
        try:
            decode(line, union)
        except ProtocolError as error:
            assert len(str(error)) < 500
        times.append(time.thread_time() - began)
        if times[-1] < BOUND_S:
            break
    return min(times)


@pytest.mark.parametrize(("union", "kind", "line_bytes"), FROM_ELSEWHERE)
def test_no_line_however_it_goes_on_takes_long(union: Any, kind: type, line_bytes: int) -> None:
    for line in largest(kind, line_bytes):
        assert line_bytes * 0.9 < len(line) <= line_bytes + 200
        assert took_s(line, union) < BOUND_S, line[:200]


def test_a_line_of_twice_the_size_takes_twice_as_long() -> None:
    kind = next(k for k in typing.get_args(FromScheduler) if k.__name__ == "Counts")
    for small, large in zip(largest(kind, 2**20), largest(kind, 2**22), strict=True):
        assert took_s(large, FromScheduler) < 12 * took_s(small, FromScheduler) + 0.01
