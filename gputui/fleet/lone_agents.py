"""Agents of hosts without a cluster.

`doctor`, `claim` and `who --watch` start them, and end them again; `who` looks once, without one.
"""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import replace

from gputui.errors import UsageError
from gputui.fleet.deploy.start_agent import AgentOpener
from gputui.fleet.host import ON_THE_WAY, FleetHost
from gputui.fleet.reachability import Ways
from gputui.fleet.stages import Ask, FleetSettings
from gputui.model.hosts import Host
from gputui.model.snapshot import AWAY, HostState
from gputui.process import IS_LINUX
from gputui.process.background import Background
from gputui.process.lifetime import raise_file_limit


@contextlib.asynccontextmanager
async def lone_agents(
    hosts: Iterable[Host],
    settings: FleetSettings,
    ask: Ask,
    opener: AgentOpener | None = None,
    *,
    port: int | None = None,
    once: bool = False,
) -> AsyncIterator[tuple[FleetHost, ...]]:
    """Start an agent on every host; yield the hosts once each is ready or has failed.

    With `port`, a host is ready once workers could run there that use a scheduler at that port. All
    agents end with the block; with `once` a host answers without one, and is left at once. Raises
    UsageError for this machine where it is a Mac.
    """
    raise_file_limit()
    hosts = tuple(hosts)
    if not IS_LINUX and any(host.is_local for host in hosts):
        raise UsageError("localhost is no host here: its agent needs Linux; name other machines")
    # Its agents hold claims for as long as their leases last, and silence ends neither earlier.
    settings = replace(
        settings,
        cluster_id=f"alone-{secrets.token_hex(4)}",
        silence_s=settings.lease_s,
        once=once,
    )
    opener = opener or AgentOpener(settings)
    found: dict[str, FleetHost] = {}
    ending = Background(lambda name, error: None)
    changed, workers_wanted = asyncio.Event(), asyncio.Event()
    scheduler_port: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    ways = Ways(found, settings.scheduler_host or "")

    def look(host: FleetHost, another_state: bool) -> None:
        changed.set()
        if once and another_state and host.state is HostState.READY:
            ending.start(host.stop(0.0), f"the end of {host.name}'s agent")

    async def until(over: Callable[[FleetHost], bool]) -> None:
        while not all(over(each) for each in found.values()):
            await changed.wait()
            changed.clear()

    for host in hosts:
        found[host.name] = FleetHost(
            host,
            settings,
            opener,
            {},
            scheduler_port,
            workers_wanted,
            changed=look,
            received=lambda host, message: None,
            find_ways=ways.find,
            ask=lambda name, question: ask(question),
        )
    try:
        await until(lambda host: host.state not in ON_THE_WAY)
        if port is not None:
            scheduler_port.set_result(port)
            workers_wanted.set()
            await until(
                lambda host: host.state in AWAY or (host.settled.is_set() and host.state.final)
            )
        yield tuple(found.values())
    finally:
        stops = (each.stop(0.0) for each in found.values())
        closing = asyncio.gather(ending.finish(settings.stage_timeout_s), *stops)
        try:
            await asyncio.shield(closing)
        finally:
            await asyncio.wait([closing])  # also where a user interrupts that
            await opener.close()
