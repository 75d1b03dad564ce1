"""From the command line's options to a head: its configuration, and the connection to it."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

from gputui.cli.arguments import HostsInput, Starting
from gputui.client import start
from gputui.client.head_connection import HeadConnection
from gputui.engine.dask_settings import given_json
from gputui.protocol import VERSION
from gputui.protocol.starter import ConfigureHead
from gputui.settings import load_settings


def head_configuration(
    hosts: HostsInput,
    flags: Starting,
    *,
    stays: bool,
    fallback: bool,
    interactive: bool = False,
    idle_timeout_s: float | None = None,
) -> ConfigureHead:
    """Return a head's configuration: the flags override the user's settings, these defaults."""
    settings = load_settings()
    idle = (flags.idle_timeout_s, settings.idle_timeout_s, idle_timeout_s)
    settings = replace(
        settings,
        busy=flags.busy or settings.busy,
        idle_timeout_s=next((each for each in idle if each is not None), None),
    )
    return ConfigureHead(
        version=VERSION,
        name=flags.name or hosts.name,
        numbered=not stays and not flags.name,
        hosts_text=hosts.text,
        hosts_source=hosts.source,
        workers=flags.workers,
        stays=stays,
        interactive=interactive,
        cpu_fallback=fallback,
        dashboard_address="" if flags.dashboard is None else f"127.0.0.1:{flags.dashboard}",
        dask_config_json=given_json(),
        **settings.keywords(),
    )


@asynccontextmanager
async def started(configuration: ConfigureHead) -> AsyncIterator[HeadConnection]:
    """Hold a cluster that lives as long as this does."""
    async with start.started(configuration, frontend="run", snapshots=True) as (_, connection):
        yield connection


@asynccontextmanager
async def attached(
    open_connection: Callable[..., Awaitable[HeadConnection]],
) -> AsyncIterator[HeadConnection]:
    """Hold a cluster that runs, and leave it running."""
    connection = await open_connection(frontend="run", snapshots=True)
    try:
        yield connection
    finally:
        await connection.close()
