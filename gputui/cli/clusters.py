"""`up`, `ls` and `down`: clusters that are left running."""

import asyncio
import json
import sys
import time
from collections.abc import Iterable
from shlex import quote
from typing import Any

from gputui.cli.arguments import read_hosts
from gputui.cli.interrupts import ignore_signals, interrupt_on_signals, run_until_interrupted
from gputui.cli.starting import head_configuration
from gputui.cluster import ConnectionFile, HeadLink, running_clusters
from gputui.cluster.start import check_enough, failures, started
from gputui.errors import ExitCode, GputuiError, UsageError
from gputui.protocol.frontend import AwaitWorkers, Settled, Stop
from gputui.protocol.starter import ConfigureHead

NONE_RUNS = "no cluster runs; gputui up HOSTS starts one"


def up(**options: Any) -> int:
    """Start a cluster, wait for its workers, and leave it running; interrupted, leave nothing."""
    interrupt_on_signals()
    hosts = read_hosts(options["hosts"])
    configuration = head_configuration(
        hosts, options, stays=True, fallback=options["hosts"] is None
    )
    return run_until_interrupted(_up(configuration))


async def _up(configuration: ConfigureHead) -> int:
    async with started(configuration, frontend="command") as (head, link):
        settled = await link.request(AwaitWorkers(0, configuration.workers))
        assert isinstance(settled, Settled)
        check_enough(settled, 1)
        ignore_signals()  # from here on there is a cluster, and the command says so
        head.keep()
    for problem in failures(settled):
        print(f"gputui: {problem}", file=sys.stderr)
    name = link.attached.name
    workers = len(settled.workers)
    print(f"{name}: {workers} worker{'s' * (workers != 1)} at {link.address}")
    if link.dashboard:
        print(f"dashboard at {link.dashboard}", file=sys.stderr)
    print(f"gputui attach {quote(name)}; gputui down {quote(name)}", file=sys.stderr)
    return int(ExitCode.DONE)


def ls(as_json: bool) -> int:
    """Print the clusters that run."""
    found = running_clusters()
    rows = asyncio.run(_described(found))
    if as_json:
        print(json.dumps(rows, indent=1))
        return 0
    if rows:
        print("\n".join(table(rows)))
    else:
        print(NONE_RUNS, file=sys.stderr)
    return 0


def table(rows: list[dict[str, Any]]) -> list[str]:
    """Return clusters, a line each under a head."""
    width = max(len(row["name"]) for row in rows)
    lines = [f"{'name':<{width}}  workers  hosts  {'since':<16}  address"]
    for row in rows:
        since = time.strftime("%Y-%m-%d %H:%M", time.localtime(row["started"]))
        counts = f"{row['workers']:>7,}  {row['hosts']:>5,}"
        lines.append(f"{row['name']:<{width}}  {counts}  {since:<16}  {row['address']}")
    return lines


async def _described(found: Iterable[ConnectionFile]) -> list[dict[str, Any]]:
    """Return what `ls --json` prints, as each head tells it."""
    return [row for row in await asyncio.gather(*map(_describe, found)) if row]


async def _describe(cluster: ConnectionFile) -> dict[str, Any] | None:
    from gputui.protocol.frontend import SnapshotTaken

    try:
        link = await HeadLink.open(cluster.socket, frontend="command", snapshots=True)
    except GputuiError:
        return None
    try:
        async for message in link.messages():
            if isinstance(message, SnapshotTaken):
                snapshot = message.snapshot
                return {
                    "name": cluster.name,
                    "address": snapshot.scheduler.address,
                    "pid": cluster.pid,
                    "hosts": len(snapshot.hosts),
                    "workers": snapshot.workers_up,
                    "started": snapshot.started_at,
                }
    finally:
        await link.close()
    return None


def down(name: str | None, everything: bool) -> int:
    """Stop one cluster, or all; raises UsageError where it is not clear which."""
    found = {cluster.name: cluster for cluster in running_clusters()}
    if not everything:
        chosen = chosen_cluster(name)
        found = {chosen.name: chosen}

    async def stop() -> None:
        await asyncio.gather(*(_stop(cluster) for cluster in found.values()))

    asyncio.run(stop())
    if not found:
        print(NONE_RUNS, file=sys.stderr)
    for each in found:
        print(f"{each}: stopped")
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
        raise UsageError(f"no cluster is called {name!r}; {listed}")
    return running[name]


async def _stop(cluster: ConnectionFile) -> None:
    """Ask a head to stop, and wait until it is gone."""
    link = await HeadLink.open(cluster.socket, frontend="command")
    try:
        await link.request(Stop(0))
        async for _ in link.messages():
            continue
    finally:
        await link.close()
