"""`up`, `ls` and `down`: clusters that are left running, on this machine or another one.

A cluster whose head runs on another machine is `user@login:NAME`.
"""

import asyncio
import contextlib
import json
import re
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from gputui.cli.terminal import (
    ask_here,
    ignore_signals,
    interrupt_on_signals,
    run_until_interrupted,
)
from gputui.client.head_connection import HeadConnection
from gputui.client.sources import HostsInput, parse_span, read_hosts, wanted_gpus
from gputui.client.start import (
    check_enough,
    connected,
    spawn_head,
    stop_by_signal,
    workers_up,
)
from gputui.errors import (
    ClusterError,
    ExitCode,
    GputuiError,
    HeadError,
    HostError,
    OtherVersionError,
    UsageError,
)
from gputui.model.plain_text import MISSING, aligned, many, safe, safe_lines
from gputui.model.readings import Wanted
from gputui.model.snapshot import ClusterState, RunState, RunStatus, Snapshot
from gputui.protocol.connection_file import ConnectionFile, chosen, find_cluster, running_clusters
from gputui.protocol.frontend import CancelRun, ReadMetrics, SnapshotTaken, StartRun, Stop
from gputui.protocol.programs import FINDING_GPUS, HOSTS_COME_UP, RUNS
from gputui.protocol.starter import ConfigureHead
from gputui.settings import load_settings

if TYPE_CHECKING:
    from gputui.client.remote_head import RemoteHead
    from gputui.runs.run import RunRequest

ANOTHER = "of another version"
NO_ANSWER = "does not answer"
HINTS = {
    ANOTHER: "gputui down stops a cluster of another version, too; to see it, use the gputui that "
    "started it",
    NO_ANSWER: "a cluster that does not answer runs all the same: its process is in ls --json",
}
"""Problem of a cluster → what to do."""
ANSWER_S = 5.0
"""How long a head may take to answer."""
ATTACHED_S = 15.0
"""How long a head may take to let in a command that needs it."""
COMING_UP = ("", FINDING_GPUS, HOSTS_COME_UP)
"""The stages of a program's run before it runs or waits in line."""
NONE_RUNS = "no cluster runs here; gputui up HOSTS starts one"


def head_configuration(
    hosts: HostsInput,
    options: Mapping[str, Any],
    *,
    stays: bool,
    interactive: bool = False,
    idle_timeout_s: float | None = None,
) -> ConfigureHead:
    """Return a head's configuration: a command's options override the user's settings, these
    defaults."""
    from gputui.engine.dask_settings import given_json

    if options["workers"] == 0 and not interactive:
        raise UsageError("--workers 0: for the screen, which then only watches: gputui watch HOSTS")
    settings, programs = load_settings(), options.get("is_program", False)
    idle = (options.get("idle_timeout"), settings.idle_timeout_s, idle_timeout_s)
    settings = replace(
        settings,
        busy=options["busy"] or settings.busy,
        notify=settings.notify if options["notify"] is None else options["notify"],
        idle_timeout_s=next((each for each in idle if each is not None), None),
    )
    return ConfigureHead(
        name=options["name"] or hosts.name,
        numbered=not options["name"] and (programs or not stays),
        hosts_text=hosts.text,
        hosts_source=hosts.source,
        workers=0 if programs else options["workers"],
        wanted=options.get("wanted") or Wanted(),
        promised_s=options.get("promised_s"),
        watch=programs or options["workers"] == 0,
        stays=stays,
        interactive=interactive,
        cpu_fallback=options["hosts"] is None or options.get("backend") == "numpy",
        dashboard_port=options["dashboard"],
        metrics_port=options["metrics"],
        dask_config_json=given_json(),
        **settings.keywords(),
    )


def up(**options: Any) -> int | None:
    """Start a cluster, wait for its workers, and leave it running; interrupted, leave nothing."""
    interrupt_on_signals()
    hosts = read_hosts(options["hosts"])
    gputui = options.pop("remote_gputui")
    if gputui and not options["on"]:
        raise UsageError("--remote-gputui: for --on USER@LOGIN")
    if login := options.pop("on"):
        return run_until_interrupted(_up_there(login, hosts, options, gputui or ""))
    options["wanted"] = wanted_gpus(hosts, options)
    options["promised_s"] = parse_span(options["for"])
    return run_until_interrupted(_up(head_configuration(hosts, options, stays=True)))


async def _up(configuration: ConfigureHead) -> None:
    def warn(problem: str) -> None:
        print(f"gputui: {safe_lines(problem)}", file=sys.stderr, flush=True)

    head = spawn_head(configuration)
    async with await connected(head, frontend="command") as connection:
        settled = await workers_up(connection, configuration.workers, warn)
        check_enough(settled, 1, reported=True)
        ignore_signals()  # from here on there is a cluster, and the command says so
        head.keep()
    name, workers = connection.attached.name, many(len(settled.workers), "worker")
    print(f"{name}: {workers} at {connection.address}")
    if connection.dashboard:
        print(f"dashboard at {connection.dashboard}", file=sys.stderr)
    if connection.attached.metrics:
        print(f"metrics at {connection.attached.metrics}", file=sys.stderr)
    print(f"gputui attach {quote(name)}; gputui down {quote(name)}", file=sys.stderr)


async def detach_program(request: "RunRequest", options: Mapping[str, Any]) -> int:
    """Start a program as a run of a head, a new one unless one is named, and leave it there.

    It runs then, or waits in line; returns its exit code where it has ended at once, else 0. Raises
    GputuiError where it was refused. A new head ends some time after the program.
    """
    from gputui.folders import runs_dir
    from gputui.runs.records import as_typed

    name, head = options["attach"], None
    if name:
        connection = await connecting(name)(frontend="command", snapshots=True)
    else:
        hosts = options.get("read") or read_hosts("-")
        head = spawn_head(head_configuration(hosts, options, stays=True), options["head"])
        connection = await connected(head, frontend="command")
    async with connection:
        done = await connection.request(
            StartRun(0, request.name, as_typed(request.parameters), cwd=str(Path.cwd()))
        )
        try:
            run = await _begun(connection, done.text)
        except asyncio.CancelledError:
            with contextlib.suppress(HeadError):
                await connection.request(CancelRun(0, done.text))
            raise
        if run.state.ended and run.state is not RunState.DONE:
            if not run.result_json:  # it did not start
                raise ClusterError(f"{run.id}: {run.words}")
            print(safe(f"gputui: {run.id}: {run.words}"), file=sys.stderr)
            return int(json.loads(run.result_json)["result"]["exit_code"])
        if head is not None:
            ignore_signals()  # from here on it runs, and the command says so
            head.keep()
    name = name or connection.attached.name
    print(safe(done.text))
    if head and not (runs_dir() / done.text).is_dir():
        text = f"gputui: this run is not recorded: {runs_dir()} cannot be written"
        print(safe(text), file=sys.stderr)
    if not run.state.ended and run.stage != RUNS:
        print(safe(f"gputui: it waits: {run.stage}"), file=sys.stderr)
    print(safe(f"gputui attach {quote(name)}; gputui down {quote(name)}"), file=sys.stderr)
    return 0


async def _begun(connection: HeadConnection, id: str) -> RunStatus:
    """Return a program's run once it runs, waits in line for GPUs, or has ended."""
    async for message in connection.messages():
        if isinstance(message, SnapshotTaken):
            for run in message.snapshot.runs:
                if run.id == id and (run.state.ended or run.stage not in COMING_UP):
                    return run
    raise HeadError(connection.why_gone)


async def _up_there(login: str, hosts: HostsInput, options: Mapping[str, Any], gputui: str) -> int:
    """Start a cluster on another machine, with the gputui that is installed there.

    Raises HeadError where that machine has none.
    """
    from gputui.client.remote_head import RemoteHead

    head = RemoteHead(login, "", ask_here)
    there = {**options, "name": options["name"] or hosts.name, "hosts": None}
    words = [f"--{k.replace('_', '-')}={v}" for k, v in there.items() if v is not None]
    try:
        answer = await head.start(words, hosts.text, gputui)
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
    shown = shown.replace(" at http://127.0.0.1:", f" on {login} at http://127.0.0.1:")
    print(safe_lines(shown), end="", file=sys.stderr)
    if re.search(r"^gputui:   ", shown, re.MULTILINE):
        print(f"gputui: these commands are for a shell on {login}", file=sys.stderr)
    print(safe_lines(answer["said"]), end="", flush=True)
    return int(answer["status"]) if answer["status"] >= 0 else int(ExitCode.INTERRUPTED)


async def ls(where: str | None, as_json: bool) -> None:
    """Print the clusters that run, on this machine or another one, or the one of a name."""
    rows = await _described(where)
    if as_json:
        print(json.dumps(rows, indent=1))
    elif rows:
        print("\n".join(table(rows)))
        for problem in {row["problem"] for row in rows} & HINTS.keys():
            print(HINTS[problem], file=sys.stderr)
    else:
        print(NONE_RUNS if where is None else f"no cluster runs at {safe(where)}", file=sys.stderr)


def table(rows: list[dict[str, Any]]) -> list[str]:
    """Return clusters, a line each under a head."""
    lines = [["name", "workers", "hosts", "since", "address"]]
    for row in rows:
        since = time.strftime("%Y-%m-%d %H:%M", time.localtime(row["started"]))
        problem = f"  ({row['problem']})" if row["problem"] else ""
        counts = [MISSING if row[key] is None else f"{row[key]:,}" for key in ("workers", "hosts")]
        address = row["address"]
        if row["state"] == ClusterState.WATCHING:
            address = f"{', '.join(row['runs']) or 'watching'}, no workers"
        lines.append([row["name"], *counts, since, address + problem])
    return aligned(lines, right=(1, 2))


async def _described(where: str | None) -> list[dict[str, Any]]:
    """Return the rows of `ls --json`."""
    if where is None:
        rows = await _asked(running_clusters())
        left = {cluster.name for cluster in running_clusters()}  # others ended meanwhile
        return [row for row in rows if row["problem"] != NO_ANSWER or row["name"] in left]
    if cluster := find_cluster(where):
        return await _asked([cluster])
    from gputui.client.remote_head import RemoteHead

    remote = remote_head(where) or RemoteHead(where, "", ask_here)
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
        "state": None,
        "runs": [],
        "problem": NO_ANSWER,
    }
    opening = HeadConnection.open(cluster.socket, frontend="command", snapshots=True)
    try:
        async with asyncio.timeout(ANSWER_S), await opening as connection:
            snapshot = (await connection.received(SnapshotTaken)).snapshot
            return row | {
                "address": snapshot.scheduler.address,
                "hosts": len(snapshot.hosts),
                "workers": snapshot.workers_up,
                "started": snapshot.started_at,
                "state": snapshot.state,
                "runs": _under_way(snapshot),
                "problem": "",
            }
    except OtherVersionError:
        return row | {"problem": ANOTHER}
    except (GputuiError, TimeoutError):
        return row


def _under_way(snapshot: Snapshot) -> list[str]:
    """Return the ids of the runs that have not ended."""
    return [run.id for run in snapshot.runs if not run.state.ended]


async def metrics(name: str | None) -> None:
    """Print a cluster's metrics; raises UsageError where it is not clear which."""
    async with await connecting(name)(frontend="command") as connection:
        done = await connection.request(ReadMetrics(0))
        print(safe_lines(done.text), end="")


async def down(name: str | None, everything: bool) -> None:
    """Stop one cluster, or all; raises UsageError where it is not clear which."""
    if everything and name is not None:
        raise UsageError(f"--all stops every cluster: leave out --all to stop {name} alone")
    if (remote := remote_head(name)) is not None:
        try:
            stopped = await _stopped(remote.open(frontend="command", snapshots=True))
        except OtherVersionError:
            stopped = await remote.stop()
        finally:
            await asyncio.shield(remote.close())
        print(safe(f"{remote.login}:{stopped}: stopped"))
        return

    async def stop(cluster: ConnectionFile) -> None:
        opening = HeadConnection.open(cluster.socket, frontend="command", snapshots=True)
        try:
            await _stopped(asyncio.wait_for(opening, ANSWER_S))
        except (OtherVersionError, TimeoutError):
            await stop_by_signal(cluster)

    found = running_clusters() if everything else (chosen(running_clusters(), name),)
    await asyncio.gather(*map(stop, found))
    if not found:
        print(NONE_RUNS, file=sys.stderr)
    for each in found:
        print(safe(f"{each.name}: stopped"))


async def _stopped(opening: Awaitable[HeadConnection]) -> str:
    """Have a head stop its cluster, and return the cluster's name once it is gone.

    The runs that end with it are named.
    """
    async with await opening as connection:
        for run in _under_way((await connection.received(SnapshotTaken)).snapshot):
            print(safe(f"gputui: {connection.attached.name}: ends {run}"), file=sys.stderr)
        await connection.request(Stop(0))
        async for _ in connection.messages():
            continue
        return connection.attached.name


def connecting(name: str | None) -> Callable[..., Awaitable[HeadConnection]]:
    """Return the function that attaches to the cluster that is meant; raises UsageError.

    That function raises HeadError where the head does not answer.
    """
    if (remote := remote_head(name)) is not None:
        return remote.open
    cluster = chosen(running_clusters(), name)

    async def attach(**given: Any) -> HeadConnection:
        opening = HeadConnection.open(cluster.socket, **given)
        try:
            return await asyncio.wait_for(opening, ATTACHED_S)
        except TimeoutError:
            message = f"{cluster.name}: its head does not answer; gputui why {quote(cluster.name)}"
            raise HeadError(message) from None

    return attach


def remote_head(given: str | None) -> "RemoteHead | None":
    """Return the head that `user@login:NAME` means; None for a cluster of this machine.

    The user at this terminal answers what SSH asks.
    """
    if given is None or not re.search("[@:]", given) or find_cluster(given):
        return None
    from gputui.client.remote_head import RemoteHead

    return RemoteHead.named(given, ask_here)
