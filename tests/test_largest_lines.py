"""The work for one line is linear in its length and short, whatever the line says."""

import contextlib
import gc
import json
import time
import typing
from collections.abc import Iterator
from dataclasses import is_dataclass, replace
from enum import StrEnum
from typing import Any

import pytest

from gputui.errors import HostError, ProtocolError
from gputui.fleet.fleet import Fleet
from gputui.head.broadcasts import EventLog, LogRelay
from gputui.head.server import LINE_BYTES as FRONTENDS_LINE_BYTES
from gputui.model.alarms import Alarms
from gputui.model.slots import slots_of
from gputui.model.snapshot import ClusterState, SchedulerState, SchedulerStatus, Snapshot
from gputui.protocol.agent import Facts, FromAgent, Telemetry
from gputui.protocol.channel import LINE_BYTES
from gputui.protocol.codec import apart, hints_of
from gputui.protocol.frontend import FromFrontend
from gputui.protocol.scheduler import FromScheduler
from gputui.protocol.typed_codec import decode, encode
from tests.fleet.simulated import SimulatedFleet

BOUND_S = 0.05
EVERY_TIME = {"Facts", "Telemetry", "WorkerExited", "StartRun"}
FROM_ELSEWHERE = [
    pytest.param(
        *(union, kind, line_bytes),
        marks=[pytest.mark.long] * (kind.__name__ not in EVERY_TIME),
        id=kind.__name__,
    )
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


def plain_json_s(size: int) -> float:
    """Return how much CPU the standard library takes for a line of so many bytes, here and now."""
    line, times = b"[" + b"0," * (size // 2) + b"0]", []
    for _ in range(3):
        began = time.thread_time()
        json.loads(line)
        times.append(time.thread_time() - began)
    return min(times)


@pytest.mark.parametrize(("union", "kind", "line_bytes"), FROM_ELSEWHERE)
def test_no_line_however_it_goes_on_takes_long(union: Any, kind: type, line_bytes: int) -> None:
    for line in largest(kind, line_bytes):
        assert line_bytes * 0.9 < len(line) <= line_bytes + 200
        took = took_s(line, union)
        assert took < BOUND_S or took < 2 * plain_json_s(len(line)), line[:200]


@pytest.mark.slow
def test_a_line_of_twice_the_size_takes_twice_as_long() -> None:
    kind = next(k for k in typing.get_args(FromScheduler) if k.__name__ == "Counts")
    for small, large in zip(largest(kind, 2**20), largest(kind, 2**22), strict=True):
        assert took_s(large, FromScheduler) < 12 * took_s(small, FromScheduler) + 0.01


FROM_AGENT = typing.get_args(FromAgent)
HOST = "h0"


class Handled:
    """A fleet on one simulated host, and all that a head does with a line of its agent's."""

    def __init__(self, gpus: int) -> None:
        self.one = SimulatedFleet(1, gpus=gpus)
        events, logs = EventLog(lambda event: None), LogRelay(lambda on: None)
        self.one.head.tell, self.one.head.logs_printed = events.tell, logs.printed

    def took_s(self, message: Any) -> tuple[float, float]:
        """Return the CPU that handling a message took, and the snapshot after it."""
        (host,) = self.one.fleet._hosts.values()
        if isinstance(message, Facts):
            names = ("python", "python_version", "packages", "gpus_known")
            message = replace(message, **{name: getattr(host.facts, name) for name in names})
        gc.collect()
        began = time.thread_time()
        with contextlib.suppress(HostError):
            host._received(message)
        handled = time.thread_time()
        shown(self.one.fleet)
        return handled - began, time.thread_time() - handled


def shown(fleet: Fleet) -> None:
    """Do with a snapshot of a fleet what heads and screens do."""
    scheduler = SchedulerStatus(SchedulerState.RUNNING)
    snapshot = Snapshot(
        *(1, 1.0, "lab", ClusterState.RUNNING, 0.0, scheduler),
        hosts=fleet.host_statuses,
        workers=fleet.worker_statuses,
    )
    taken = decode(encode(snapshot), Snapshot)
    Alarms().look(taken, slots_of(taken))


def of_a_host(kind: type, size: int) -> Any:
    """Return a message of a kind whose tuples hold so many things each, all of them apart."""
    worker = f"{HOST}:gpu0"

    def value(hint: Any, name: str, number: int) -> Any:
        hint, bounds, optional = apart(hint)
        if is_dataclass(hint):
            parts = hints_of(hint).items()
            return hint(**{field: value(part, field, number) for field, part in parts})
        if typing.get_origin(hint) is tuple:
            first, *rest = typing.get_args(hint)
            if rest != [...]:
                return tuple(value(part, name, number) for part in (first, *rest))
            most = size if name in ("devices", "workers", "running", "lines") else size // 64
            return tuple(value(first, name, each) for each in range(min(bounds.most, most)))
        if optional:
            return None
        if issubclass(hint, StrEnum):
            return next(iter(hint))
        if hint is str:
            own = f"{HOST}:gpu{number}" if kind in (Facts, Telemetry) else worker
            return {"name": own, "worker": own, "label": str(number)}.get(name, f"{name}{number}")
        return {bool: False}.get(hint, bounds.least if bounds else 0)

    return value(kind, "", 0)


@pytest.mark.slow
async def test_what_a_head_does_for_a_line_is_linear_in_what_the_host_has() -> None:
    for kind in FROM_AGENT:
        times = []
        for size in (64, 512):
            handled = Handled(size)
            await handled.one.up(size)
            message = of_a_host(kind, size)
            assert len(encode(message)) < LINE_BYTES
            taken = [handled.took_s(message) for _ in range(5)]
            times.append([min(each) for each in zip(*taken, strict=True)])
            await handled.one.fleet.stop(0.1)
        for small, large in zip(*times, strict=True):
            assert large < 3 * 8 * small + 0.003, (kind.__name__, times)
