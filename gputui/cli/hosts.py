"""Commands that make hosts ready: `doctor` and `bootstrap`."""

import sys
from dataclasses import replace
from pathlib import Path

import click

from gputui.cli.terminal import ask_here
from gputui.client.sources import read_hosts
from gputui.errors import ExitCode, UsageError
from gputui.fleet.stages import FleetSettings
from gputui.model.plain_text import safe
from gputui.settings import load_settings

OTHERS_ONLY = """bootstrap makes other hosts ready; this machine has what gputui is installed with
  gputui bootstrap hosts.txt    or such lines as an argument: 'gpu-a,gpu-b'
  gputui doctor                 says what is missing on this machine"""


def fleet_settings() -> FleetSettings:
    """Return how this user's hosts are reached, for a command without a cluster."""
    return FleetSettings(cluster_id="none", **load_settings().keywords())


async def doctor(hosts: str | None) -> int:
    """Print what every check says of every host; 3 where one of them cannot be used."""
    from gputui.fleet.checks import Verdict
    from gputui.fleet.doctor import diagnose, report

    settings = replace(fleet_settings(), cpu_fallback=hosts is None)
    found = await diagnose(read_hosts(hosts).hosts, settings, ask_here)
    print(report(found))
    bad = any(finding.verdict is Verdict.BAD for finding in found)
    return int(ExitCode.NO_CLUSTER if bad else ExitCode.DONE)


async def bootstrap(
    hosts: str | None,
    yes: bool,
    lock: str | None,
    wheels: str | None,
    index: str,
    host_pip_conf: bool,
    build: bool,
) -> int:
    """Describe the changes, ask for confirmation, carry them out and print the outcome.

    Raises UsageError where no host is named but this machine, on which gputui is installed, and
    where no user can say yes.
    """
    from gputui.fleet.deploy.bootstrap import bootstrap as make_ready
    from gputui.fleet.deploy.bootstrap import describe, read_source

    folder = Path(wheels) if wheels else None
    settings = fleet_settings()
    given = [host for host in read_hosts(hosts).hosts if not host.is_local]
    if not given:
        raise UsageError(OTHERS_ONLY)
    source = read_source(Path(lock) if lock else None, folder, index, host_pip_conf, build)
    click.echo(describe(given, settings, source), err=True)
    if not (yes or sys.stdin.isatty()):
        raise UsageError("bootstrap changes hosts, and cannot ask without a terminal: add --yes")
    if not (yes or click.confirm("Go on?", err=True)):
        click.echo("gputui: nothing was changed", err=True)
        return int(ExitCode.INTERRUPTED)

    def tell(host: str, line: str) -> None:
        click.echo(f"{host}: {safe(line)}", err=True)

    outcomes = await make_ready(given, settings, tell=tell, ask=ask_here, source=source)
    for host, outcome in zip(given, outcomes, strict=True):
        if isinstance(outcome, str):
            click.echo(f"{host.name}: ready: {safe(outcome)}")
            continue
        click.echo(f"{host.name}: failed: {safe(outcome.reason)}")
        if outcome.hint:
            click.echo(f"  {safe(outcome.hint)}")
    failed = not all(isinstance(outcome, str) for outcome in outcomes)
    return int(ExitCode.NO_CLUSTER if failed else ExitCode.DONE)
