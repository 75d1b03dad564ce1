"""From HOSTS and the command line's options to a head: its configuration, the connection to it."""

import importlib.util
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from gputui.client import start
from gputui.client.head_connection import HeadConnection
from gputui.client.sources import HostsInput
from gputui.errors import UsageError
from gputui.protocol import VERSION
from gputui.protocol.starter import ConfigureHead
from gputui.settings import load_settings


def check_dashboard(port: int) -> None:
    """Raise UsageError where no dashboard can be served on a port; Dask would take another one."""
    if importlib.util.find_spec("bokeh") is None:
        raise UsageError("--dashboard needs bokeh: pip install 'gputui[report]'")
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind(("127.0.0.1", port))
        except OSError as error:
            hint = "name another one, or 0 for any"
            raise UsageError(f"--dashboard {port}: {error.strerror}; {hint}") from error


def head_configuration(
    hosts: HostsInput,
    options: Mapping[str, Any],
    *,
    stays: bool,
    fallback: bool,
    interactive: bool = False,
    idle_timeout_s: float | None = None,
) -> ConfigureHead:
    """Return a head's configuration: a command's options override the user's settings, these
    defaults."""
    from gputui.engine.dask_settings import given_json

    settings, port = load_settings(), options["dashboard"]
    idle = (options.get("idle_timeout"), settings.idle_timeout_s, idle_timeout_s)
    settings = replace(
        settings,
        busy=options["busy"] or settings.busy,
        idle_timeout_s=next((each for each in idle if each is not None), None),
    )
    return ConfigureHead(
        version=VERSION,
        name=options["name"] or hosts.name,
        numbered=not stays and not options["name"],
        hosts_text=hosts.text,
        hosts_source=hosts.source,
        workers=options["workers"],
        stays=stays,
        interactive=interactive,
        cpu_fallback=fallback,
        dashboard_address="" if port is None else f"127.0.0.1:{port}",
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
    async with await open_connection(frontend="run", snapshots=True) as connection:
        yield connection
