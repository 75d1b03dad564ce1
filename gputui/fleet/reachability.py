"""Whether this machine reaches the workers of each host, and they each other.

Workers listen on ports of their own, so every host opens such a port for the others to try. A host
passes once it was tried, both ways, with all that passed before. Where a way is closed, the later
one fails. A host that this machine cannot reach, or that cannot reach it, waits for all others, and
goes through SSH where they do, too: so it takes none down that start with it.
"""

import asyncio
import errno
import os
import time
from collections.abc import Collection, Mapping
from itertools import islice

from gputui.errors import HostError
from gputui.fleet import checks
from gputui.fleet.addresses import (
    LOOPBACK,
    bracketed,
    is_loopback,
    is_of_a_host,
    parsed,
)
from gputui.fleet.host import FleetHost
from gputui.fleet.session import AgentSession
from gputui.fleet.stages import Stages
from gputui.fleet.tunnel import AT_LEAST, Tunnel, free_ports
from gputui.model.plan import usual_workers
from gputui.model.snapshot import HostState
from gputui.protocol.agent import Listen, Listening, Reach, Reached
from gputui.protocol.streams import try_port

CONNECT_S = 4.0
"""How long a connection may take."""
LOOK_S = 0.1
"""How often a scheduler that is being started again is looked for."""
ANSWER_S = 8.0
"""How long an agent may take to open or try a port; a slower one is judged by its own silence."""
MOST_OTHERS = 31
"""How many other hosts a host is tried with: an agent opens a connection to each."""
HINT = (
    "let them connect to each other, and this machine to them, on every port: each worker listens "
    "on one of its own; worker-ports=40000-40100 and listen=ADDRESS on a host's line set on which"
)


LISTEN_HINT = "listen=ADDRESS or interface=NAME on its line names one that it has"


FORWARDING_HINT = "AllowTcpForwarding in its sshd_config lets SSH forward ports"
BY_WAY_OF_HERE = (
    "what they exchange with other hosts goes by way of this machine: it is faster to let "
    "worker-ports=40000-40100 in, or to start inside with gputui up --on HOST"
)
APART_HINT = (
    "write '* tunnel=true' above all lines, and all go through this machine; or let their workers "
    "in (worker-ports=40000-40100), or start the cluster inside: gputui up --on HOST"
)


class Ways:
    """Where the workers of each host listen, once this machine and the others reach them there."""

    def __init__(self, hosts: Mapping[str, FleetHost], own_address: str) -> None:
        """`own_address` is where other machines reach this one, "" where that is to be found."""
        self._hosts = hosts
        self._own_address = own_address

    def listen_host(self, host: FleetHost) -> str:
        """Return where a host's workers listen, with IPv6 in brackets; "" for one that must wait.

        This machine's listen on loopback, unless other machines are there or on their way: then
        where these reach it, which is this end of the first connection to one of them.
        """
        address = host.listen_address or host.far_address
        if host.tunnel is not None or not is_loopback(address):
            return bracketed(address)
        others = [each for each in self._hosts.values() if not _is_here(each)]
        if not others:
            return address
        ends = (each.local_address for each in others if each.local_address)
        found = self._own_address or next(ends, "")
        if not is_loopback(found):
            self._own_address = found
        return bracketed(found)

    async def find(self, host: FleetHost, session: AgentSession, scheduler_port: int) -> None:
        """Find where a host's workers listen, and how they reach the scheduler; raises HostError.

        Where a firewall is between it and this machine they go through the SSH connection.
        """
        wish, connection = host.host.tunnel, session.connection
        why = host.tunnel.why if host.tunnel else "tunnel=true"
        if not wish and host.tunnel is None:
            shut = await self._find_direct(host, session, scheduler_port)
            if shut is None:
                return
            if wish is False or connection is None or host.listen_address:
                raise shut
            why = shut.reason
            host.settled.set()
            for other in list(self._hosts.values()):  # one that needs no tunnel comes first
                await other.settled.wait()
        await self._find_tunnel(host, session, scheduler_port, why)
        if connection is not None:
            together = f"; {BY_WAY_OF_HERE}" if self._others(host, through_ssh=True) else ""
            host.warn(f"its workers go through its SSH connection: {why}{together}")

    async def _find_direct(
        self, host: FleetHost, session: AgentSession, scheduler_port: int
    ) -> HostError | None:
        """Return why this machine and the host do not reach each other; None where they do.

        Raises HostError where it fails otherwise.
        """
        stages, line = session.stages, host.host
        there = f"{bracketed(host.scheduler_host)}:{scheduler_port}"
        why = f"{host.far_address or host.name} cannot reach the scheduler at {there}"
        order = Reach(0, host.scheduler_host, scheduler_port, stages.timeout_s * 0.8)
        async with stages.enter(HostState.CHECKING, f"{why}: no answer", checks.PORT_HINT):
            reached = await _scheduler_reached(session, order, stages.timeout_s / 2)
        if reached.error:
            return stages.error(f"{why}: {reached.error}", checks.PORT_HINT)
        if host.listen_address:
            return None
        address = wish = (line.listen or host.far_address).strip("[]")
        if not is_loopback(address):
            late = f"its agent opened no port at {address} within {stages.timeout_s:g} s"
            async with stages.enter(HostState.CHECKING, late):
                opened = await session.ask(Listen(0, wish, line.ports))
                if opened.error and not line.listen and is_of_a_host(reached.local_address):
                    # It was reached at the address of a machine before it, which forwards a port.
                    wish = reached.local_address
                    opened = await session.ask(Listen(0, wish, line.ports))
            address = address_of(wish, opened)
            if opened.error or (wish and not address):  # some SSH servers say no address
                why = opened.error or "that is no address for others"
                where = bracketed(wish)
                raise stages.error(f"its workers cannot listen on {where}: {why}", LISTEN_HINT)
            async with stages.enter(HostState.CHECKING, "the ways to its workers: no answer"):
                if shut := await from_here(host, line.contact or address, opened.port):
                    return stages.error(shut, HINT)
                if shut := await self._closed(host, address, opened.port, stages):
                    raise stages.error(shut, HINT)
        if others := self._others(host, through_ssh=True):
            raise stages.error(apart(others[0], host.name), APART_HINT)
        host.listen_address = address
        return None

    async def _find_tunnel(
        self, host: FleetHost, session: AgentSession, scheduler_port: int, why: str
    ) -> None:
        """Open the ways through a host's SSH connection; raises HostError."""
        stages = session.stages
        assert host.capacity is not None
        try:
            async with stages.enter(HostState.CHECKING, f"{why}; through SSH: no answer"):
                count = max(AT_LEAST, 2 * usual_workers(host.host, host.capacity))
                tunnel = host.tunnel or Tunnel(why, host.host.ports or free_ports(count))
                await tunnel.open(session, scheduler_port)
                if others := self._others(host, through_ssh=False):
                    raise stages.error(apart(host.name, others[0]), APART_HINT)
                host.tunnel, host.listen_address = tunnel, LOOPBACK
                for other in [each.tunnel for each in self._hosts.values() if each.tunnel]:
                    if other is not tunnel:
                        await tunnel.lead_to(other)
                        await other.lead_to(tunnel)
                        stages.progress()
        except OSError as error:
            # After a cut the connection before may still have the ports there, for a while.
            reason = f"{why}; through its SSH connection: {error.strerror or error}"
            raise stages.error(reason, FORWARDING_HINT, transient=True) from error

    def _others(self, host: FleetHost, *, through_ssh: bool) -> list[str]:
        """Return the other hosts whose workers go through SSH, or those whose do not."""
        return [
            each.name
            for each in self._hosts.values()
            if each.listen_address and (each.tunnel is not None) is through_ssh
            if each is not host and each.state is not HostState.FAILED
        ]

    async def _closed(self, host: FleetHost, address: str, port: int, stages: Stages) -> str:
        """Return the first way to or from a host's workers that is closed; "" for none.

        The host listens on `port`. It is tried with the hosts that have passed or pass meanwhile.
        """
        error, tried = "", set[FleetHost]()
        while not error and (others := self._passed(host, tried)):
            tried |= {*others}
            errors = await asyncio.gather(
                *(_both_ways(host, address, port, other) for other in others)
            )
            error = next(filter(None, errors), "")
            stages.progress()
        return error

    def _passed(self, host: FleetHost, tried: Collection[FleetHost]) -> list[FleetHost]:
        """Return the hosts that a host is still to be tried with."""
        found = (
            other
            for other in self._hosts.values()
            if other.listen_address and other is not host and other not in tried
            if other.state is not HostState.FAILED and not is_loopback(other.listen_address)
        )
        return list(islice(found, MOST_OTHERS - len(tried)))


async def _scheduler_reached(session: AgentSession, order: Reach, bound_s: float) -> Reached:
    """Have an agent try the scheduler; one that is being started again is waited for."""
    reached: Reached = await session.ask(order)
    if reached.error == os.strerror(errno.ECONNREFUSED):
        until = time.monotonic() + bound_s
        while (await try_port(LOOPBACK, order.port, CONNECT_S))[0] and time.monotonic() < until:
            await asyncio.sleep(LOOK_S)
        reached = await session.ask(order)
    return reached


def _is_here(host: FleetHost) -> bool:
    """Return whether a host is this machine, or has no part in the cluster."""
    address = host.listen_address or host.far_address
    return host.state is HostState.FAILED or bool(address and is_loopback(address))


async def _both_ways(host: FleetHost, address: str, port: int, other: FleetHost) -> str:
    order = Listen(0, other.listen_address, other.host.ports)
    there: Listening | None = await other.ask_agent(order, ANSWER_S)
    errors = await asyncio.gather(
        _between(other, host, address, port),
        _between(host, other, other.listen_address, there.port if there else 0),
    )
    return next(filter(None, errors), "")


def closed(source: str, near: str, target: str, far: str, error: str) -> str:
    """Describe a way that is closed.

    >>> closed("gpu-a", "10.0.0.7", "gpu-b", "fd00::8", "no answer within 4 s")
    'gpu-a (10.0.0.7) cannot reach the workers of gpu-b at [fd00::8]: no answer within 4 s'
    """
    near = f" ({near})" if near else ""
    return f"{source}{near} cannot reach the workers of {target} at {bracketed(far)}: {error}"


def apart(behind: str, other: str) -> str:
    """Describe two hosts of which one goes through SSH, and the other does not."""
    return (
        f"{behind} is reached by SSH only, so its workers and those of {other} cannot reach "
        "each other"
    )


def address_of(wish: str, opened: Listening) -> str:
    """Return where a port is open that was wished there; "" where that is no address of a host.

    An agent decides for an interface only, and what it says is not trusted.

    >>> opened = Listening(0, 1, "", "10.0.0.8")
    >>> address_of("10.0.0.7", opened), address_of("ib0", opened)
    ('10.0.0.7', '10.0.0.8')
    >>> address_of("ib0", Listening(0, 1, "", "::1"))
    ''
    """
    if parsed(wish):
        return wish
    return opened.address if is_of_a_host(opened.address) else ""


async def from_here(host: FleetHost, address: str, port: int) -> str:
    """Try a port of a host from this machine; return the way where that is closed, or ""."""
    error, _ = await try_port(address, port, CONNECT_S) if port else ("", "")
    return closed("this machine", host.local_address, host.name, address, error) if error else ""


async def _between(source: FleetHost, target: FleetHost, address: str, port: int) -> str:
    """Try a port of a host from another one; return the way where that is closed, or ""."""
    far = target.host.contact or address
    order = Reach(0, far, port, CONNECT_S)
    reached: Reached | None = await source.ask_agent(order, ANSWER_S) if port else None
    if not reached or not reached.error:
        return ""
    near = source.listen_address or source.far_address
    return closed(source.name, near, target.name, far, reached.error)
