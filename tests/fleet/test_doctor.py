"""What doctor finds, and how bootstrap makes a host ready."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

from gputui.fleet.deploy.bootstrap import bootstrap, pins
from gputui.fleet.deploy.opening import Shared
from gputui.fleet.deploy.pack import Pack
from gputui.fleet.doctor import diagnose
from gputui.fleet.findings import Verdict
from gputui.fleet.settings import FleetSettings
from gputui.fleet.stages import Question
from gputui.hosts import Host
from tests.sshd import AsyncsshServer, SshHosts

Start = Callable[..., AsyncsshServer]

UV = """#!/bin/sh
case $1 in
venv) echo "making with $*"; mkdir -p "$5/bin"; ln -s "{python}" "$5/bin/python";;
pip) echo "installing with $*";;
esac
"""


async def nobody(question: Question) -> str | None:
    return None


async def test_doctor_names_every_check_of_a_good_host(
    asyncssh_hosts: SshHosts, standin_pack: Pack
) -> None:
    settings = FleetSettings("test", ssh_config=str(asyncssh_hosts.config))
    shared = Shared(settings, lambda: standin_pack)
    found = await diagnose([Host("ssh1", gpus=())], settings, nobody, shared)
    checks = ["connect", "login", "python", "versions", "gpus", "disk", "clock", "port"]
    assert [finding.check for finding in found] == checks
    bad = [finding for finding in found if finding.verdict is Verdict.BAD]
    assert bad == []


async def test_doctor_says_where_a_host_fails_and_goes_on_with_the_others(
    asyncssh_hosts: SshHosts, standin_pack: Pack
) -> None:
    settings = FleetSettings("test", ssh_config=str(asyncssh_hosts.config))
    hosts = [Host("ssh1", python="/no/python"), Host("nowhere.invalid"), Host("ssh2", gpus=())]
    shared = Shared(settings, lambda: standin_pack)
    found = await diagnose(hosts, settings, nobody, shared)
    bad = [(one.host, one.check) for one in found if one.verdict is Verdict.BAD]
    assert bad == [("ssh1", "python"), ("nowhere.invalid", "resolve")]


async def test_bootstrap_makes_the_environment_with_the_versions_of_this_one(
    start_asyncssh: Start, ssh_folder: SshHosts
) -> None:
    start_asyncssh("ssh1", environ=home_with_uv(ssh_folder.folder))
    settings = FleetSettings("test", ssh_config=str(ssh_folder.config))
    told: list[str] = []
    (outcome,) = await bootstrap(
        [Host("ssh1", gpus=())], settings, tell=lambda host, line: told.append(line), ask=nobody
    )
    python = ssh_folder.folder / "home/.local/share/gputui/env/bin/python"
    assert (outcome.python, outcome.reason) == (str(python), "")
    installed = f"installing with pip install --python {python} {' '.join(pins())}"
    assert installed in told


async def test_bootstrap_says_what_a_host_lacks(
    start_asyncssh: Start, ssh_folder: SshHosts
) -> None:
    home = home_with_uv(ssh_folder.folder)
    (ssh_folder.folder / "bin" / "uv").write_text("#!/bin/sh\necho 'no space left'; exit 1\n")
    start_asyncssh("ssh1", environ=home)
    settings = FleetSettings("test", ssh_config=str(ssh_folder.config))
    told: list[str] = []
    (outcome,) = await bootstrap(
        [Host("ssh1")], settings, tell=lambda host, line: told.append(line), ask=nobody
    )
    assert "no space left" in told
    assert outcome.reason == "the environment could not be made: see above"


def home_with_uv(folder: Path) -> dict[str, str]:
    """Return the environment of a user with an empty home and a `uv` that only says what it does.

    The interpreter that runs the script there is this one, by the name python3.
    """
    binaries = folder / "bin"
    binaries.mkdir()
    (folder / "home").mkdir()
    (binaries / "uv").write_text(UV.format(python=sys.executable))
    (binaries / "uv").chmod(0o700)
    return {"HOME": str(folder / "home"), "PATH": f"{binaries}:{os.environ['PATH']}"}
