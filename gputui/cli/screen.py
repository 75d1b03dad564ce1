"""The commands that open the screen: the unnamed one, `attach` and `watch`."""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gputui.cli.options import AT_START, refuse_elsewhere
from gputui.client.sources import HostsInput, read_hosts, wanted_gpus
from gputui.errors import UsageError
from gputui.process.lifetime import look_rarely

if TYPE_CHECKING:
    from gputui.client.remote_head import RemoteHead
    from gputui.protocol.connection_file import ConnectionFile


def open_screen(given: Mapping[str, str], options: Mapping[str, Any]) -> int:
    """Open the screen that the options ask for."""
    show = prepare_screen(given, options)
    need_terminal("gputui [HOSTS] --run PRESET, or gputui up")
    return show()


def prepare_screen(given: Mapping[str, str], options: Mapping[str, Any]) -> Callable[[], int]:
    """Prepare the screen that the options ask for; raises UsageError."""
    refuse_elsewhere(given, options)
    look = {name: options[name] for name in ("theme", "only_ascii", "readonly")}
    if options["demo"] is not None:
        from gputui.demo import shape

        opening = partial(opened_demo, shape(options["demo"]), options["seed"])
        return partial(show, opening, look, simulated=True)
    if options["attach"]:
        return partial(show_running, options["attach"], look)
    starting = {name: options[name] for name in ("hosts", "name", *AT_START)}
    hosts = read_hosts(options["hosts"])
    return partial(show_started, hosts, look | starting | {"wanted": wanted_gpus(hosts, options)})


def attach(name: str | None, **options: Any) -> int:
    """Open the screen on a cluster that runs."""
    need_terminal("gputui --attach NAME --run PRESET")
    return show_running(name, options)


def watch(hosts: str | None, **options: Any) -> int:
    """Open the screen on hosts without workers, or on their cluster where it runs."""
    need_terminal("gputui who [HOSTS]")
    starting = {"hosts": hosts, **dict.fromkeys(AT_START), "workers": 0}
    return show_started(read_hosts(hosts), options | starting)


def need_terminal(instead: str) -> None:
    """Raise UsageError where no screen can be shown, with what to write instead."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError(f"the screen needs a terminal; without one: {instead}")
    if not sys.stderr.isatty():  # Textual draws there
        raise UsageError("the screen is drawn on stderr: leave stderr on the terminal, without 2>")
    if os.environ.get("TERM") == "dumb":
        raise UsageError(f"TERM is dumb: the screen cannot be drawn; instead: {instead}")


async def opened_demo(shape: tuple[int, int], seed: int) -> Any:
    """Start simulated hosts; returns the connection to their head."""
    from gputui.demo.cluster import Demo

    return await Demo(shape, seed=seed).open()


def show_running(name: str | None, options: Mapping[str, Any]) -> int:
    """Show a running cluster; raises UsageError when none runs, or several do."""
    from gputui.cli.clusters import remote_head
    from gputui.client.head_connection import HeadConnection
    from gputui.protocol.connection_file import chosen, find_cluster, running_clusters

    if (remote := remote_head(name)) is not None:
        return show(partial(remote.open, frontend="screen", snapshots=True), options, login=remote)
    meant = chosen(running_clusters(), name)

    async def open_connection() -> Any:
        # Another terminal may have started it again.
        socket = (find_cluster(meant.name) or meant).socket
        return await HeadConnection.open(socket, frontend="screen", snapshots=True)

    return show(open_connection, options)


def show_started(hosts: HostsInput, options: Mapping[str, Any]) -> int:
    """Show the cluster of these hosts: the one that runs, or one that is started now."""
    from gputui.protocol.connection_file import digest_of, find_cluster

    name = options["name"] or hosts.name
    same = ("", digest_of(hosts.text))

    def fits(there: "ConnectionFile") -> bool:
        """Whether it is the one that is meant; the hosts of a file may have changed since."""
        return there.hosts_source == hosts.source and bool(
            hosts.source
            or there.hosts_digest in same
            or (options["name"] and options["hosts"] is None)
        )

    if (running := find_cluster(name)) and not fits(running):
        raise UsageError(
            f"a cluster called {name} runs on other hosts"
            f"{running.hosts_source and f' ({running.hosts_source})'}; "
            "give --name, or gputui attach"
        )
    given = (options["workers"] or None, *(options[each] for each in AT_START[1:]))
    if running and any(each not in (None, "") for each in given):
        these = ", --".join(AT_START).replace("_", "-")
        raise UsageError(
            f"{name} runs already, and --{these} are for its start: "
            f"leave them out, or stop it first: gputui down {name}"
        )
    notice = f"the hosts of {name} have changed since its start; to use them: gputui down {name}"
    found: list[Path] = [Path(running.socket)] if running else []

    async def open_connection() -> Any:
        from gputui.client.head_connection import HeadConnection

        there = find_cluster(name)
        if there and fits(there):
            found[:] = [Path(there.socket)]  # another terminal may have started it, or again
        elif not found:
            found.append(await _start(hosts, options))
        return await HeadConnection.open(found[0], frontend="screen", snapshots=True)

    changed = running and hosts.source and running.hosts_digest not in same
    return show(open_connection, options, found.clear, notice=notice if changed else "")


async def _start(hosts: HostsInput, options: Mapping[str, Any]) -> Path:
    """Start a head that outlives this screen, and return its socket."""
    from gputui.cli.clusters import head_configuration
    from gputui.client.start import spawn_head
    from gputui.protocol.starter import SCREEN_IDLE_S

    configuration = await asyncio.to_thread(
        head_configuration,
        hosts,
        options,
        stays=True,
        idle_timeout_s=SCREEN_IDLE_S,
        interactive=True,
    )
    head = spawn_head(configuration)
    socket = await asyncio.to_thread(head.opened)
    head.keep()
    return Path(socket)


def show(
    open_connection: Callable[[], Awaitable[Any]],
    options: Mapping[str, Any],
    start_again: Callable[[], None] | None = None,
    simulated: bool = False,
    login: "RemoteHead | None" = None,
    notice: str = "",
) -> int:
    """Show a cluster until the screen is closed, at first with a notice; raises UsageError for an
    unknown theme.
    """
    from gputui.tui.app import run_screen
    from gputui.tui.rendering.palette import check_theme

    look_rarely()
    if options["theme"]:
        check_theme(options["theme"])
    with asyncio.Runner() as runner:
        try:
            if login is not None:
                runner.run(login.reach())  # while the terminal is free for SSH's questions
            return run_screen(
                open_connection,
                runner.run,
                readonly=options["readonly"],
                theme=options["theme"],
                ascii=options["only_ascii"],
                start_again=None if options["readonly"] else start_again,
                simulated=simulated,
                notice=notice,
                login=login.login if login else "",
                ask_on_screen=login.ask_on_screen if login else None,
            )
        finally:
            if login is not None:
                runner.run(login.close())
