"""OpenSSH is the oracle: on each configuration of the table, gputui does what ssh does.

A row of each kind runs every time. `pytest tests/fleet/oracle -m "long or not long"` runs all, and
writes the table with what both came to, `oracle.md`, next to this file.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import asyncssh
import pytest

from tests.fleet.homes import run_at_home
from tests.fleet.oracle.rows import ROWS, Row
from tests.fleet.oracle.world import HOSTS, KERBEROS, passwd
from tests.sshd import SSHD, unavailable

BOUND_S = 600
"""All rows take a minute on two quiet cores."""

pytestmark = pytest.mark.timeout(BOUND_S + 20)

EVERY_TIME = {
    "no configuration",
    "/etc/ssh/ssh_config",
    "Include",
    "Match exec",
    "an option that does not exist",
    "the port of the line",
    "a name whose first address refuses",
    "ProxyJump, a chain",
    "Host * with ProxyJump",
    "ProxyCommand of a shell",
    "a changed host key",
    "a hashed entry with a port",
    "a line that cannot be read",
    "@cert-authority",
    "@revoked",
    "@revoked authority",
    "KnownHostsCommand",
    "the agent's come first",
    "CertificateFile",
    "a key that others can read",
    "a wrong passphrase, then the next key",
    "keyboard-interactive",
    "PermitLocalCommand",
    "added with +",
    "a ControlMaster of a jump host",
    "ProxyCommand of an ssh that asks for a password",
    "ProxyJump with tokens, %h",
    "all three, on a jump host, too",
    "Match sessiontype of a jump host",
    "%C of KnownHostsCommand through a jump host",
    "CheckHostIP, another key of the address, ask, gpu-w, no",
    "@cert-authority without the port, behind a jump host",
    "a certificate that has expired, accept-new",
    "UserKnownHostsFile in quotes and another",
    "12 keys in the agent, three tries: CertificateFile, the key in a file",
    "pkcs8 with a passphrase, right",
    "keyboard-interactive in 5 rounds, NumberOfPasswordPrompts 1, in",
    "an agent that answers slowly",
    "HostbasedAuthentication with EnableSSHKeysign",
    "GSSAPIAuthentication with a ticket",
}
"""The names of the rows that run with all other tests."""

Results = Mapping[str, Mapping[str, Mapping[str, object]]]


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A folder that sshd can read as any user, which pytest's own are not."""
    with tempfile.TemporaryDirectory(prefix="oracle-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture(scope="module")
def results(request: pytest.FixtureRequest, folder: Path) -> Results:
    """Return what both clients came to, by the row's name."""
    items = [
        item for item in request.session.items if getattr(item, "module", None) is request.module
    ]
    names = [item.callspec.params["row"].name for item in items]
    if SSHD is None:
        unavailable("there is no sshd")
    (folder / "world").mkdir()
    home, etc = folder / "own" / "home", {"hosts": HOSTS + "\n", "passwd": passwd(folder / "world")}
    compare = (sys.executable, "-m", "tests.fleet.oracle.compare", folder / "world", home, *names)
    done = run_at_home(home, etc, *compare, bound_s=BOUND_S)
    assert done.returncode == 0, done.stderr
    found = {row["name"]: row for row in map(json.loads, done.stdout.splitlines())}
    if len(found) == len(ROWS) and KERBEROS:
        Path(__file__).with_name("oracle.md").write_text(table(found))
    return found


def long_or_not(row: Row) -> Any:
    """Return the row as a parameter, marked long where it does not run every time."""
    marks = [] if row.name in EVERY_TIME else [pytest.mark.long]
    if row.kerberos and not KERBEROS:
        marks.append(pytest.mark.skip(reason="needs krb5kdc and gssapi"))
    return pytest.param(row, id=row.name, marks=marks)


@pytest.mark.parametrize("row", [long_or_not(row) for row in ROWS])
def test_gputui_does_what_ssh_does(results: Results, row: Row) -> None:
    ssh, gputui = results[row.name]["ssh"], results[row.name]["gputui"]
    said = f"ssh: {ssh['words']}\ngputui: {gputui['words']}"
    expected = row.expected if ssh_version() >= row.since else "configuration"
    assert gputui["result"] == ssh["result"] == expected, said
    assert tuple(gputui["asked"]) == tuple(ssh["asked"]) == row.asked, said
    assert gputui["remembered"] == ssh["remembered"], said
    assert gputui["called"] == ssh["called"], said
    assert not results[row.name]["touched"]


def ssh_version() -> tuple[int, ...]:
    """Return the version of the ssh that is the oracle."""
    said = subprocess.run(["ssh", "-V"], capture_output=True, text=True).stderr
    return tuple(map(int, said.partition("_")[2].partition("p")[0].split(".")))


def table(found: Results) -> str:
    """Return the table, with the versions of both clients."""
    version = subprocess.run(["ssh", "-V"], capture_output=True, text=True).stderr.split(",")[0]
    lines = [
        "# What ssh and gputui make of the same configurations",
        "",
        f"{version} and gputui with asyncssh {asyncssh.__version__}, each against sshd of the same",
        'OpenSSH, written by `pytest tests/fleet/oracle -m "long or not long"`. `user@address:port',
        "key` is who was let in where, and by what; anything else is why nobody was.",
        "",
        "| configuration | ssh | gputui | a person is asked for | agree |",
        "|---|---|---|---|---|",
    ]
    for row in ROWS:
        ssh, gputui = found[row.name]["ssh"], found[row.name]["gputui"]
        keys = ("result", "asked", "sent", "remembered", "called")
        agree = "yes" if all(ssh[key] == gputui[key] for key in keys) else "**no**"
        asked = ", ".join(map(str, gputui["asked"])) or "–"
        lines.append(f"| {row.name} | {ssh['result']} | {gputui['result']} | {asked} | {agree} |")
    agreed = sum(line.endswith("| yes |") for line in lines)
    return "\n".join([*lines, "", f"{agreed} of {len(ROWS)} agree.", ""])
