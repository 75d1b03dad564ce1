"""What doctor finds, and how bootstrap makes a host ready."""

import hashlib
import os
import resource
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pytest

import gputui
from gputui.errors import HostError, UsageError
from gputui.fleet.checks import Finding, Verdict
from gputui.fleet.deploy import remote, start_agent
from gputui.fleet.deploy.bootstrap import (
    NOTHING_SPECIAL,
    PackageSource,
    bootstrap,
    pins,
    read_source,
)
from gputui.fleet.deploy.remote import Pack
from gputui.fleet.deploy.start_agent import AgentOpener
from gputui.fleet.doctor import diagnose
from gputui.fleet.lone_agents import lone_agents
from gputui.fleet.stages import FleetSettings
from gputui.model.hosts import Host
from gputui.process.lifetime import OPEN_FILES
from tests.fleet.conftest import nobody, own_sshd
from tests.sshd import AsyncsshServer, SshHosts

Start = Callable[..., AsyncsshServer]

UV = """#!/bin/sh
case $1 in
venv) {venv};;
pip) {pip};;
esac
"""
MAKES = 'echo "making with $*"; mkdir -p "$5/bin"; ln -s "{python}" "$5/bin/python"'
INSTALLS = 'echo "installing with $*"'
SETTINGS = FleetSettings("test")


async def examined(hosts: SshHosts, *lines: Host, pack: Pack | None = None) -> list[Finding]:
    """Return what doctor finds, with this agent or the real one."""
    settings = replace(SETTINGS, ssh_config=str(hosts.config))
    opener = AgentOpener(settings, lambda: pack) if pack else None
    return list(await diagnose(lines, settings, nobody, opener))


def bad(found: Iterable[Finding]) -> list[Finding]:
    return [each for each in found if each.verdict is Verdict.BAD]


async def test_doctor_names_every_check_of_a_good_host(
    asyncssh_hosts: SshHosts, standin_pack: Pack
) -> None:
    found = await examined(asyncssh_hosts, Host("ssh1", gpus=()), pack=standin_pack)
    checks = ["connect", "login", "python", "versions", "gpus", "disk", "clock", "port"]
    assert [finding.check for finding in found] == checks
    assert bad(found) == []


async def test_doctor_says_that_a_server_drops_connections(
    ssh_folder: SshHosts, standin_pack: Pack
) -> None:
    names = [f"ssh{number}" for number in range(1, 7)]
    with own_sshd(ssh_folder, "MaxStartups 1:100:1\n", *names):
        hosts = [Host(name, gpus=(), python=sys.executable) for name in names]
        found = await examined(ssh_folder, *hosts, pack=standin_pack)
    assert any(one.check == "sessions" and "dropped" in one.text for one in found), found
    assert bad(found) == []


async def test_doctor_names_limits_that_will_end_an_agent_and_what_to_set(
    ssh_folder: SshHosts,
) -> None:
    with own_sshd(ssh_folder, "", "ssh1"):
        host = Host("ssh1", gpus=(), python=sys.executable, setup="ulimit -t 5000")
        found = await examined(ssh_folder, host)
    (limit,) = (one for one in found if one.check == "limits")
    assert limit.verdict is Verdict.DOUBTFUL
    assert limit.text == "a process is killed after 5000 s of CPU time (ulimit -t)"
    assert limit.hint.startswith("cpu in /etc/security/limits.conf")


HONEST = '"python": "p", "version": "3", "send": false, "address": "", "client": ""'
LIES = {
    "no JSON": "{",
    "a list": "[]",
    "a number": '{"python": 3}',
    "a time": f'{{{HONEST}, "time": 1e999}}',
}
LIAR = """#!{python} -B
import re, sys
for line in sys.stdin.buffer:
    if word := re.search(rb'"nonce": "([0-9a-f]+)"', line):
        print({greeting!r}, word[1].decode(), {lie!r}, flush=True)
        sys.stdin.buffer.read()
"""


async def test_a_host_that_greets_with_a_lie_fails_alone_in_doctor(
    asyncssh_hosts: SshHosts, standin_pack: Pack, tmp_path: Path
) -> None:
    for number, lie in enumerate(LIES.values()):
        liar = tmp_path / f"liar{number}"
        greeting = remote.GREETING.decode()
        liar.write_text(LIAR.format(python=sys.executable, greeting=greeting, lie=lie))
        liar.chmod(0o700)
        hosts = [Host("ssh1", python=str(liar)), Host("ssh2", gpus=())]
        (found,) = bad(await examined(asyncssh_hosts, *hosts, pack=standin_pack))
        assert found.host == "ssh1" and "is not what it says" in found.text, (lie, found)


async def test_doctor_says_where_a_host_fails_and_goes_on_with_the_others(
    asyncssh_hosts: SshHosts, standin_pack: Pack
) -> None:
    hosts = [Host("ssh1", python="/no/python"), Host("nowhere.invalid"), Host("ssh2", gpus=())]
    found = bad(await examined(asyncssh_hosts, *hosts, pack=standin_pack))
    failed = [(one.host, one.check) for one in found]
    assert failed == [("ssh1", "python"), ("nowhere.invalid", "resolve")]


async def made_ready(
    hosts: SshHosts, *names: str, source: PackageSource = NOTHING_SPECIAL
) -> tuple[tuple[str | HostError, ...], list[str]]:
    """Return what became of hosts that bootstrap made ready, and what it told meanwhile."""
    settings = replace(SETTINGS, ssh_config=str(hosts.config))
    told: list[str] = []
    outcomes = await bootstrap(
        [Host(name, gpus=()) for name in names],
        settings,
        tell=lambda host, line: told.append(line),
        ask=nobody,
        source=source,
    )
    return outcomes, told


async def test_bootstrap_makes_the_environment_with_the_versions_of_this_one(
    start_asyncssh: Start, ssh_folder: SshHosts
) -> None:
    start_asyncssh("ssh1", environ=home_with_uv(ssh_folder.folder))
    (outcome,), told = await made_ready(ssh_folder, "ssh1")
    python = ssh_folder.folder / "home/.local/share/gputui/env/bin/python"
    assert outcome == str(python)
    wheels_only = f"--python {python} --only-binary :all:"
    installed = f"installing with pip install {wheels_only} {' '.join(pins())}"
    assert installed in told


async def test_bootstrap_says_what_a_host_lacks(
    start_asyncssh: Start, ssh_folder: SshHosts
) -> None:
    full = home_with_uv(ssh_folder.folder, venv="echo 'no space left'; exit 1")
    start_asyncssh("ssh1", environ=full)
    (outcome,), told = await made_ready(ssh_folder, "ssh1")
    assert "no space left" in told
    assert outcome.reason == "the environment could not be made: see above"


async def test_bootstrap_names_a_login_shell_that_waits_for_ever(
    start_asyncssh: Start, ssh_folder: SshHosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start_agent, "PATIENT", 1 / SETTINGS.stage_timeout_s)
    start_asyncssh("ssh1", shell=("/bin/sh", "-c", "cat >/dev/null"))
    (outcome,), _ = await made_ready(ssh_folder, "ssh1")
    assert "its login shell did not start Python within 1 s" in outcome.reason
    assert "`ssh ssh1 true`" in outcome.hint


@pytest.mark.slow
def test_a_checkout_makes_hosts_ready_and_is_what_runs_there(
    start_asyncssh: Start, ssh_folder: SshHosts, tmp_path: Path
) -> None:
    start_asyncssh("ssh1", environ=home_with_uv(ssh_folder.folder))
    checkout = tmp_path / "checkout"
    shutil.copytree(Path(gputui.__file__).parent, checkout / "gputui")
    facts = checkout / "gputui" / "agent" / "facts.py"
    facts.write_text(facts.read_text().replace("watch.warnings()", '("of this checkout",)'))
    ready = run_from(checkout, ssh_folder, "bootstrap", "ssh1", "--yes")
    assert ready.stdout.startswith("ssh1: ready: "), ready.stderr
    assert "gputui" not in ready.stderr.partition("installing with ")[2].replace("/gputui/env/", "")
    examined = run_from(checkout, ssh_folder, "doctor", "ssh1")
    assert "of this checkout" in examined.stdout, examined.stderr


def run_from(checkout: Path, hosts: SshHosts, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the gputui of a checkout that is not installed."""
    return subprocess.run(
        [sys.executable, "-m", "gputui", *arguments],
        cwd=checkout,
        env={**os.environ, **hosts.environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=90,
    )


@pytest.mark.slow
async def test_hosts_with_one_home_make_the_environment_once_from_sent_wheels_and_a_lock(
    start_asyncssh: Start, ssh_folder: SshHosts
) -> None:
    home = ssh_folder.folder / "home"
    home.mkdir()
    (home / ".config" / "pip").mkdir(parents=True)
    (home / ".config" / "pip" / "pip.conf").write_text("[install]\nno-binary = :all:\n")
    binaries = Path(sys.executable).resolve().parent
    environ = {"HOME": str(home), "PATH": f"{binaries}:/usr/bin:/bin", "PIP_INDEX_URL": "x"}
    for name in ("ssh1", "ssh2"):
        start_asyncssh(name, environ=environ)
    folder = ssh_folder.folder / "wheels"
    dask = SETTINGS.versions.dask
    (folder / "lock.txt").write_text(make_wheels(folder, dask=dask, distributed=dask))
    source = read_source(folder / "lock.txt", folder, "", False)
    outcomes, told = await made_ready(ssh_folder, "ssh1", "ssh2", source=source)
    python = home / ".local/share/gputui/env/bin/python"
    assert list(outcomes) == [str(python)] * 2, (outcomes, told)
    assert sum(line.startswith("making ") for line in told) == 1
    assert sum(line.endswith("is ready") for line in told) == 1
    assert list(python.parent.parent.glob(f"lib/*/*/dask-{dask}.dist-info"))


async def test_a_wheel_that_is_not_the_locked_one_is_refused(
    start_asyncssh: Start, ssh_folder: SshHosts
) -> None:
    refusing = home_with_uv(ssh_folder.folder, pip=f"{INSTALLS}; exit 1")
    start_asyncssh("ssh1", environ=refusing)
    source = PackageSource(lock="dask==1 --hash=sha256:00")
    (outcome,), told = await made_ready(ssh_folder, "ssh1", source=source)
    assert any("--require-hashes" in line for line in told)
    assert outcome.reason == "the packages could not be installed: see above"


async def test_a_host_that_reaches_no_index_is_said_to_have_a_pip_conf_of_its_own(
    start_asyncssh: Start, ssh_folder: SshHosts
) -> None:
    pip = 'echo "  error sending request for url (https://pypi.org/simple/dask/)"; exit 2'
    home = home_with_uv(ssh_folder.folder, pip=pip)
    conf = ssh_folder.folder / "home" / ".config" / "pip" / "pip.conf"
    conf.parent.mkdir(parents=True)
    conf.write_text("[global]\nindex-url = https://mirror.lab/simple\n")
    start_asyncssh("ssh1", environ=home)
    (outcome,), _ = await made_ready(ssh_folder, "ssh1")
    assert outcome.reason == "the packages could not be installed: see above"
    assert "--host-pip-conf uses its own ~/.config/pip/pip.conf" in outcome.hint
    assert "--index URL" in outcome.hint and "--wheels FOLDER" in outcome.hint


BOOTSTRAP_LIES = {
    "a number": '{"line": 3}',
    "a list": '{"done": ["x"]}',
    "no hint": '{"failed": "x"}',
    "an object": '{"failed": {}, "hint": 1}',
    "deep": "[" * 100_000,
    "digits": "9" * 100_000,
}


async def test_a_host_that_lies_to_bootstrap_fails_alone(
    start_asyncssh: Start, ssh_folder: SshHosts
) -> None:
    honest = home_with_uv(ssh_folder.folder)
    for number, lie in enumerate(BOOTSTRAP_LIES.values()):
        binaries = ssh_folder.folder / f"liar{number}"
        binaries.mkdir()
        for name in (f"python{sys.version_info.major}.{sys.version_info.minor}", "python3"):
            (binaries / name).write_text(f"#!{sys.executable}\nprint({lie!r})\n")
            (binaries / name).chmod(0o700)
        path = f"{binaries}:{os.environ['PATH']}"
        start_asyncssh(f"liar{number}", environ={"HOME": honest["HOME"], "PATH": path})
    start_asyncssh("honest", environ=honest)
    liars = [f"liar{number}" for number in range(len(BOOTSTRAP_LIES))]
    found, _ = await made_ready(ssh_folder, *liars, "honest")
    assert [isinstance(each, str) for each in found] == [False] * len(liars) + [True], found
    assert all(outcome.reason for outcome in found[:-1])


def test_a_lock_of_another_dask_is_refused(tmp_path: Path) -> None:
    (tmp_path / "lock.txt").write_text("dask==1.0 \\\n  --hash=sha256:00\n")
    with pytest.raises(UsageError, match=r"lock.txt: dask 1.0, but .* is used here"):
        read_source(tmp_path / "lock.txt", None, "", False)


def test_bootstrap_without_a_terminal_asks_for_yes(
    asyncssh_hosts: SshHosts, tmp_path: Path
) -> None:
    done = run_from(tmp_path, asyncssh_hosts, "bootstrap", "ssh1")
    assert done.returncode == 2
    assert "add --yes" in done.stderr


def make_wheels(folder: Path, **versions: str) -> str:
    """Make wheels with nothing in them, and return a lock of them."""
    folder.mkdir()
    lines = []
    for name, version in versions.items():
        info = f"{name}-{version}.dist-info"
        path = folder / f"{name}-{version}-py3-none-any.whl"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(
                f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
            )
            archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
            archive.writestr(f"{info}/RECORD", "")
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        lines.append(f"{name}=={version} --hash=sha256:{digest}\n")
    return "".join(lines)


def home_with_uv(folder: Path, venv: str = MAKES, pip: str = INSTALLS) -> dict[str, str]:
    """Return the environment of a user with an empty home and a `uv` that does this.

    The interpreter that runs the script there is this one, by the name python3.
    """
    binaries = folder / "bin"
    binaries.mkdir()
    (folder / "home").mkdir()
    (binaries / "uv").write_text(UV.format(venv=venv.format(python=sys.executable), pip=pip))
    (binaries / "uv").chmod(0o700)
    return {"HOME": str(folder / "home"), "PATH": f"{binaries}:{os.environ['PATH']}"}


@pytest.mark.parametrize(
    ("disk", "reason", "hint"),
    [
        ("size=3m", "the environment could not be made: see above", "free some disk space there: "),
        ("ro", "/.local: Read-only file system", "python="),
    ],
    ids=["full", "read-only"],
)
async def test_a_home_without_room_is_the_reason_and_no_missing_package(
    start_asyncssh: Start, ssh_folder: SshHosts, disk: str, reason: str, hint: str
) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can mount")
    home = ssh_folder.folder / "home"
    home.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", disk, "none", home], check=True)
    path = f"{Path(sys.executable).resolve().parent}:/usr/bin:/bin"
    start_asyncssh("ssh1", environ={"HOME": str(home), "PATH": path})
    try:
        (outcome,), _ = await made_ready(ssh_folder, "ssh1")
    finally:
        subprocess.run(["umount", "--lazy", home], check=True)
    assert reason in outcome.reason and hint in outcome.hint, (outcome.reason, outcome.hint)


async def test_the_soft_limit_of_open_files_bounds_no_hosts() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
    try:
        async with lone_agents([], FleetSettings("none"), nobody):
            assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == min(before[1], OPEN_FILES)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
