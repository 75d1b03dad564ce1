"""`up`, `ls` and `down`: clusters that are left running, on this machine or another one.

A cluster whose head runs on another machine is `user@login:NAME`.
"""

import asyncio
import json
import re
import sys
import time
from collections.abc import Iterable, Mapping
from shlex import quote
from typing import TYPE_CHECKING, Any

from gputui.cli.asking import ask_here
from gputui.cli.interrupts import ignore_signals, interrupt_on_signals, run_until_interrupted
from gputui.cli.starting import head_configuration
from gputui.client.head_connection import GONE, HeadConnection
from gputui.client.sources import read_hosts
from gputui.client.start import check_enough, started, stop_by_signal, too_few, workers_up
from gputui.errors import (
    ClusterError,
    ExitCode,
    GputuiError,
    HeadError,
    HostError,
    OtherVersionError,
    UsageError,
)
from gputui.model.plain_text import aligned, safe, safe_lines
from gputui.protocol.connection_file import ConnectionFile, find_cluster, running_clusters
from gputui.protocol.frontend import Stop
from gputui.protocol.starter import ConfigureHead

if TYPE_CHECKING:
    from gputui.client.remote_head import RemoteHead
    from gputui.model.snapshot import Snapshot

ANOTHER = "of another version"
OTHER_VERSION = (
    "gputui down stops a cluster of another version, too; to see it, use the gputui that started it"
)
NO_ANSWER = "does not answer"
NO_ANSWER_HINT = "a cluster that does not answer runs all the same: its process is in ls --json"
ANSWER_S = 5.0
"""How long a head may take to answer."""
NONE_RUNS = "no cluster runs; gputui up HOSTS starts one"


def up(**options: Any) -> int:
    """Start a cluster, wait for its workers, and leave it running; interrupted, leave nothing."""
    interrupt_on_signals()
    hosts = read_hosts(options["hosts"])
    gputui = options.pop("remote_gputui")
    if gputui and not options["on"]:
        raise UsageError("--remote-gputui: for --on USER@LOGIN")
    if login := options.pop("on"):
        words = {key.replace("_", "-"): value for key, value in options.items() if key != "hosts"}
        there = words | {"name": options["name"] or hosts.name}
        return run_until_interrupted(start_there(login, there, hosts.text, gputui or ""))
    configuration = head_configuration(
        hosts, options, stays=True, fallback=options["hosts"] is None
    )
    return run_until_interrupted(_up(configuration))


async def _up(configuration: ConfigureHead) -> int:
    async with started(configuration, frontend="command", snapshots=True) as (head, connection):
        settled = await workers_up(connection, configuration.workers, _warn)
        for line in too_few(settled, configuration.workers):
            _warn(line)
        check_enough(settled, 1, reported=True)
        ignore_signals()  # from here on there is a cluster, and the command says so
        head.keep()
    name = connection.attached.name
    workers = len(settled.workers)
    print(f"{name}: {workers} worker{'s' * (workers != 1)} at {connection.address}")
    if connection.dashboard:
        print(f"dashboard at {connection.dashboard}", file=sys.stderr)
    print(f"gputui attach {quote(name)}; gputui down {quote(name)}", file=sys.stderr)
    return int(ExitCode.DONE)


def _warn(problem: str) -> None:
    print(f"gputui: {safe_lines(problem)}", file=sys.stderr, flush=True)


def ls(where: str | None, as_json: bool) -> int:
    """Print the clusters that run, on this machine or another one, or the one of a name."""
    rows = asyncio.run(_described(where))
    if as_json:
        print(json.dumps(rows, indent=1))
        return 0
    if rows:
        print("\n".join(table(rows)))
        problems = {row["problem"] for row in rows}
        for problem, hint in ((ANOTHER, OTHER_VERSION), (NO_ANSWER, NO_ANSWER_HINT)):
            if problem in problems:
                print(hint, file=sys.stderr)
    else:
        print(NONE_RUNS, file=sys.stderr)
    return 0


def table(rows: list[dict[str, Any]]) -> list[str]:
    """Return clusters, a line each under a head."""
    lines = [["name", "workers", "hosts", "since", "address"]]
    for row in rows:
        since = time.strftime("%Y-%m-%d %H:%M", time.localtime(row["started"]))
        problem = f"  ({row['problem']})" if row["problem"] else ""
        counts = _count(row["workers"]), _count(row["hosts"])
        lines.append([row["name"], *counts, since, row["address"] + problem])
    return aligned(lines, right=(1, 2))


def _count(number: int | None) -> str:
    return "–" if number is None else f"{number:,}"


async def _described(where: str | None) -> list[dict[str, Any]]:
    """Return the rows of `ls --json`."""
    if where is None:
        rows = await _asked(running_clusters())
        left = {cluster.name for cluster in running_clusters()}  # others ended meanwhile
        return [row for row in rows if row["problem"] != NO_ANSWER or row["name"] in left]
    if cluster := find_cluster(where):
        return await _asked([cluster])
    remote = remote_machine(where)
    try:
        found = await remote.clusters()
        return await _asked(each for each in found if remote.name in ("", each.name))
    except HostError as error:
        here = "" if re.search("[@:]", where) else f"no cluster is called {where!r} here, and "
        raise ClusterError(f"{here}{error}") from error
    finally:
        await asyncio.shield(remote.close())


async def _asked(found: Iterable[ConnectionFile]) -> list[dict[str, Any]]:
    """Ask each head for its row."""
    return list(await asyncio.gather(*map(_describe, found)))


async def _describe(cluster: ConnectionFile) -> dict[str, Any]:

    row: dict[str, Any] = {
        "name": cluster.name,
        "address": cluster.address,
        "pid": cluster.pid,
        "hosts": None,
        "workers": None,
        "started": cluster.started_at,
        "version": cluster.version,
        "problem": "",
    }
    try:
        async with asyncio.timeout(ANSWER_S):
            snapshot = await _snapshot(cluster.socket)
    except OtherVersionError:
        return row | {"problem": ANOTHER}
    except (GputuiError, TimeoutError):
        return row | {"problem": NO_ANSWER}
    return row | {
        "address": snapshot.scheduler.address,
        "hosts": len(snapshot.hosts),
        "workers": snapshot.workers_up,
        "started": snapshot.started_at,
    }


async def _snapshot(socket: str) -> "Snapshot":
    """Return a head's first snapshot; raises HeadError where it ends without one."""
    from gputui.protocol.frontend import SnapshotTaken

    async with await HeadConnection.open(socket, frontend="command", snapshots=True) as connection:
        async for message in connection.messages():
            if isinstance(message, SnapshotTaken):
                return message.snapshot
    raise HeadError(GONE)


def down(name: str | None, everything: bool) -> int:
    """Stop one cluster, or all; raises UsageError where it is not clear which."""
    if everything and name is not None:
        raise UsageError(f"--all stops every cluster: leave out --all to stop {name} alone")
    if (remote := remote_head(name)) is not None:
        print(safe(f"{remote.login}:{asyncio.run(_stop_there(remote))}: stopped"))
        return 0
    found = running_clusters() if everything else (chosen_cluster(name),)
    asyncio.run(_stop_here(found))
    if not found:
        print(NONE_RUNS, file=sys.stderr)
    for each in found:
        print(safe(f"{each.name}: stopped"))
    return 0


def chosen_cluster(name: str | None) -> ConnectionFile:
    """Return the cluster that is meant, the only one without a name; raises UsageError."""
    running = {cluster.name: cluster for cluster in running_clusters()}
    if name is None and len(running) == 1:
        return next(iter(running.values()))
    if name is None and not running:
        raise UsageError(NONE_RUNS)
    listed = f"running: {', '.join(running)}" if running else "none runs"
    if name is None:
        raise UsageError(f"say which cluster; {listed}")
    if name not in running:
        elsewhere = f"one on the machine {name} is {name}:NAME"
        raise UsageError(f"no cluster is called {name!r}; {listed}\n  {elsewhere}")
    return running[name]


async def _stop_here(found: Iterable[ConnectionFile]) -> None:
    """Have heads stop their clusters, and wait until they are gone; those of any version."""

    async def stop(cluster: ConnectionFile) -> None:
        try:
            await _stop_over(await HeadConnection.open(cluster.socket, frontend="command"))
        except OtherVersionError:
            await stop_by_signal(cluster)

    await asyncio.gather(*map(stop, found))


async def _stop_there(remote: "RemoteHead") -> str:
    """Stop a cluster on another machine, of any version; returns its name."""
    try:
        return await _stop_over(await remote.open(frontend="command"))
    except OtherVersionError:
        return await remote.stop()
    finally:
        await asyncio.shield(remote.close())


async def _stop_over(connection: HeadConnection) -> str:
    """Have a head stop its cluster, and return the cluster's name once it is gone."""
    async with connection:
        await connection.request(Stop(0))
        async for _ in connection.messages():
            continue
        return connection.attached.name


def remote_head(given: str | None) -> "RemoteHead | None":
    """Return the head that `user@login:NAME` means; None for a cluster of this machine.

    The user at this terminal answers what SSH asks.
    """
    if given is None or not re.search("[@:]", given) or find_cluster(given):
        return None
    from gputui.client.remote_head import RemoteHead

    return RemoteHead.named(given, ask_here)


def remote_machine(given: str) -> "RemoteHead":
    """Return a machine with heads, `login`, `user@login` or with the name of one."""
    from gputui.client.remote_head import RemoteHead

    return RemoteHead.named(given, ask_here) or RemoteHead(given, "", ask_here)


async def start_there(
    login: str, arguments: Mapping[str, Any], hosts_text: str, gputui: str = ""
) -> int:
    """Start a cluster on another machine, with the gputui that is installed there.

    Raises HeadError where that machine has none.
    """
    from gputui.client.remote_head import RemoteHead

    head = RemoteHead(login, "", ask_here)
    words = [f"--{key}={value}" for key, value in arguments.items() if value is not None]
    try:
        answer = await head.start(words, hosts_text, gputui)
    finally:
        await asyncio.shield(head.close())
    if "looked" in answer:
        looked = ", ".join(map(str, answer["looked"]))
        raise HeadError(
            f"{login}: no gputui there (looked for {safe(looked)})\n"
            "  pip install gputui there, or name it: --remote-gputui PATH"
        )
    shown = answer["warned"].replace("gputui attach ", f"gputui attach {login}:")
    shown = shown.replace("gputui down ", f"gputui down {login}:")
    print(safe_lines(shown), end="", file=sys.stderr)
    if re.search(r"^gputui:   ", shown, re.MULTILINE):
        print(f"gputui: these commands are for a shell on {login}", file=sys.stderr)
    print(safe_lines(answer["said"]), end="", flush=True)
    return int(answer["status"]) if answer["status"] >= 0 else int(ExitCode.INTERRUPTED)
