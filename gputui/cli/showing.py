"""Opening the screen on a demo, on a cluster that runs, or on one that is started for it."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gputui.client.sources import HostsInput, read_hosts
from gputui.errors import UsageError
from gputui.process.garbage import look_rarely

if TYPE_CHECKING:
    from gputui.client.remote_head import RemoteHead
    from gputui.demo import Shape
    from gputui.tui.attachment import StartOptions


Options = Mapping[str, Any]
"""Those of a command: `theme`, `only_ascii` and `readonly` are how the screen looks."""


async def opened_demo(shape: "Shape", seed: int) -> Any:
    """Start simulated hosts; returns the connection to their head."""
    from gputui.demo import open_demo

    return await open_demo(shape, seed=seed, questions=False)


def show_running(name: str | None, options: Options) -> int:
    """Show a running cluster; raises UsageError when none runs, or several do."""
    from gputui.cli.clusters import chosen_cluster, remote_head
    from gputui.client.head_connection import HeadConnection
    from gputui.protocol.connection_file import find_cluster

    if (remote := remote_head(name)) is not None:
        return show(partial(remote.open, frontend="screen", snapshots=True), options, login=remote)
    chosen = chosen_cluster(name)

    async def open_connection() -> Any:
        # Another terminal may have started it again.
        socket = (find_cluster(chosen.name) or chosen).socket
        return await HeadConnection.open(socket, frontend="screen", snapshots=True)

    return show(open_connection, options)


def show_started(hosts: HostsInput, options: Options) -> int:
    """Show the cluster of these hosts: the one that runs, or one that is started now."""
    from gputui.client.head_connection import HeadConnection
    from gputui.protocol.connection_file import find_cluster

    name = options["name"] or hosts.name
    running = find_cluster(name)
    if running and running.hosts_source != hosts.source:
        raise UsageError(
            f"a cluster called {name} runs on other hosts ({running.hosts_source or 'no file'}); "
            "give --name, or gputui attach"
        )
    if running and any(options[each] is not None for each in ("workers", "busy", "dashboard")):
        raise UsageError(
            f"{name} runs already, and --workers, --busy and --dashboard are for its start: "
            f"leave them out, or stop it first: gputui down {name}"
        )
    found: list[Path] = [Path(running.socket)] if running else []
    chosen = [hosts]

    async def open_connection() -> Any:
        there = find_cluster(options["name"] or chosen[0].name)
        if there is not None and there.hosts_source == chosen[0].source:
            found[:] = [Path(there.socket)]  # another terminal may have started it, or again
        elif not found:
            found.append(await _start(chosen[0], options))
        return await HeadConnection.open(found[0], frontend="screen", snapshots=True)

    def begin(kind: str, text: str) -> Callable[[], Awaitable[Any]]:
        """Return a function that opens the hosts chosen in place of this machine."""
        if kind == "demo":
            return partial(opened_demo, Shape.parse(FIRST_DEMO), 0)
        if kind in ("ssh", "file"):
            read = read_hosts(text if kind == "file" else text.replace("\n", ";"))
            chosen[0] = read if read.source else replace(read, name="ssh")
        return open_connection

    first = None
    # Devices that a driver of NVIDIA's made, without asking it.
    gpus_here = any(Path("/dev").glob("nvidia[0-9]*")) or Path("/dev/dxg").exists()
    if options["hosts"] is None and not (options["name"] or running or gpus_here):
        from gputui.demo import Shape
        from gputui.tui.attachment import StartOptions

        first = StartOptions(named_hosts(), begin)
    return show(open_connection, options, start_again=found.clear, first=first)


FIRST_DEMO = "16x8"


SCREEN_IDLE_S = 3600.0
"""A cluster that a screen left running ends after so long without a frontend or a run."""


async def _start(hosts: HostsInput, options: Options) -> Path:
    """Start a head that outlives this screen, and return its socket."""
    from gputui.cli.clusters import head_configuration
    from gputui.client.start import spawn_head

    configuration = await asyncio.to_thread(
        head_configuration,
        hosts,
        options,
        stays=True,
        idle_timeout_s=SCREEN_IDLE_S,
        fallback=options["hosts"] is None,
        interactive=True,
    )
    head = spawn_head(configuration)
    socket = await asyncio.to_thread(head.opened)
    head.keep()
    return Path(socket)


def show(
    open_connection: Callable[[], Awaitable[Any]],
    options: Options,
    start_again: Callable[[], None] | None = None,
    simulated: bool = False,
    first: "StartOptions | None" = None,
    login: "RemoteHead | None" = None,
) -> int:
    """Show a cluster until the screen is closed; raises UsageError for an unknown theme."""
    look_rarely()  # imports leave nothing behind that is worth looking for
    from gputui.tui.rendering.palette import check_theme
    from gputui.tui.screen import run_screen

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
                first=first,
                login=login.login if login else "",
                ask_on_screen=login.ask_on_screen if login else None,
            )
        finally:
            if login is not None:
                runner.run(login.close())


MOST_HOSTS = 200
"""Hosts of the SSH configuration that are offered."""


def named_hosts(path: Path | None = None) -> tuple[str, ...]:
    """Return the names of the `Host` lines of an SSH configuration that are no patterns."""
    names = _read_names(path or Path.home() / ".ssh" / "config", deep=0)
    return tuple(dict.fromkeys(names))[:MOST_HOSTS]


def _read_names(path: Path, deep: int) -> Iterator[str]:
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return
    for line in lines:
        keyword, *words = line.replace("=", " ", 1).replace('"', "").split() or [""]
        if keyword.lower() == "host":
            yield from (word for word in words if not set("*?!") & set(word))
        elif keyword.lower() == "include" and deep < 8:
            for word in words:
                pattern = Path.home() / ".ssh" / Path(word).expanduser()
                for each in sorted(Path("/").glob(str(pattern).lstrip("/"))):
                    yield from _read_names(each, deep + 1)
