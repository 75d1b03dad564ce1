"""Whether this machine reaches the workers of each host, and they each other.

Workers listen on ports of their own, so every host opens such a port for the others to try. Each
pair of hosts is tried once, both ways, when the later of the two is checked. Where a way is closed,
the later one fails, unless the earlier one fails its own check: one host behind a firewall must not
take those down that start with it.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from gputui.fleet.addresses import bracketed
from gputui.protocol.agent import Listen, Listening, Reach, Reached

CONNECT_S = 4.0
"""How long a connection may take."""
ANSWER_S = 8.0
"""How long an agent may take to report it; one that does not is judged by its own silence."""
MOST_OTHERS = 32
"""How many other hosts a host is tried with: an agent opens a connection to each."""
HINT = (
    "let them connect to each other, and this machine to them, on every port: each worker listens "
    "on one of its own; listen=ADDRESS on a host's line sets where"
)


AskAgent = Callable[[Listen | Reach], Awaitable[Any]]
"""Has an agent carry an order out; returns the answer."""


def _future() -> "asyncio.Future[bool]":
    return asyncio.get_running_loop().create_future()


@dataclass(frozen=True, slots=True)
class End:
    """A host whose workers others are to reach."""

    name: str
    address: str
    """Where its workers listen, without brackets."""
    ask: AskAgent
    usable: asyncio.Future[bool] = field(default_factory=_future)
    """The end of its own check. Waited for with `asyncio.wait`, which does not cancel it."""


async def blocked(port: int, end: End, others: Sequence[End], here: str) -> str:
    """Return the first way that is closed between a host, this machine and others; "" for none.

    The host listens on `port`; `here` is this machine's address on the way to it.
    """
    ports = await asyncio.gather(*(open_port(other) for other in others))
    ways = [(end, from_here(here, end, port))]
    for other, there in zip(others, ports, strict=True):
        ways += [(other, between(other, end, port)), (other, between(end, other, there))]
    errors = await asyncio.gather(*(way for _, way in ways))
    for (other, _), error in zip(ways, errors, strict=True):
        if error and other is not end:
            await asyncio.wait([other.usable])
        if error and (other is end or other.usable.result()):
            return error
    return ""


def closed(source: str, near: str, target: str, far: str, error: str) -> str:
    """Describe a way that is closed.

    >>> closed("gpu-a", "10.0.0.7", "gpu-b", "fd00::8", "no answer within 4 s")
    'gpu-a (10.0.0.7) cannot reach the workers of gpu-b at [fd00::8]: no answer within 4 s'
    """
    near = f" ({near})" if near else ""
    return f"{source}{near} cannot reach the workers of {target} at {bracketed(far)}: {error}"


async def connect_error(address: str, port: int) -> str:
    """Connect to a port, and return why that failed; "" where it did not."""
    try:
        async with asyncio.timeout(CONNECT_S):
            _, writer = await asyncio.open_connection(address, port)
            writer.close()
    except TimeoutError:
        return f"no answer within {CONNECT_S:g} s"
    except OSError as error:
        return error.strerror or str(error)
    return ""


async def open_port(end: End) -> int:
    """Have a host open a port; 0 where it does not."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(ANSWER_S):
            opened: Listening = await end.ask(Listen(end.address))
            return opened.port
    return 0


async def from_here(here: str, end: End, port: int) -> str:
    """Try a port of a host from this machine; return the way where that is closed, or ""."""
    error = await connect_error(end.address, port) if port else ""
    return closed("this machine", here, end.name, end.address, error) if error else ""


async def between(source: End, target: End, port: int) -> str:
    """Try a port of a host from another one; return the way where that is closed, or ""."""
    if port:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ANSWER_S):
                reached: Reached = await source.ask(Reach(target.address, port, CONNECT_S))
                if reached.error:
                    names = source.name, source.address, target.name, target.address
                    return closed(*names, reached.error)
    return ""
