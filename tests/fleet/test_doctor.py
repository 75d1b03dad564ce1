"""What doctor finds, and how bootstrap makes a host ready."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import gputui
from gputui.errors import UsageError
from gputui.fleet.checks import Verdict
from gputui.fleet.deploy import preparing, remote
from gputui.fleet.deploy.bootstrap import PackageSource, bootstrap, pins, read_source
from gputui.fleet.deploy.remote import Pack
from gputui.fleet.deploy.start_agent import AgentOpener
from gputui.fleet.doctor import diagnose
from gputui.fleet.stages import FleetSettings, Question
from gputui.model.hosts import Host
from tests.fleet.conftest import own_sshd
from tests.sshd import AsyncsshServer, SshHosts

Start = Callable[..., AsyncsshServer]

UV = """#!/bin/sh
case $1 in
venv) echo "making with $*"; mkdir -p "$5/bin"; ln -s "{python}" "$5/bin/python";;
pip) echo "installing with $*";;
esac
"""

REFUSING_UV = UV.replace('echo "installing with $*"', 'echo "installing with $*"; exit 1')


async def nobody(question: Question) -> str | None:
    return None


async def test_doctor_names_every_check_of_a_good_host(
    asyncssh_hosts: SshHosts, standin_pack: Pack
) -> None:
    settings = FleetSettings("test", ssh_config=str(asyncssh_hosts.config))
    shared = AgentOpener(settings, lambda: standin_pack)
    found = await diagnose([Host("ssh1", gpus=())], settings, nobody, shared)
    checks = ["connect", "login", "python", "versions", "gpus", "disk", "clock", "port"]
    assert [finding.check for finding in found] == checks
    bad = [finding for finding in found if finding.verdict is Verdict.BAD]
    assert bad == []


async def test_doctor_says_that_a_server_drops_connections(
    ssh_folder: SshHosts, standin_pack: Pack
) -> None:
    names = [f"ssh{number}" for number in range(1, 7)]
    with own_sshd(ssh_folder, "MaxStartups 1:100:1\n", *names):
        settings = FleetSettings("test", ssh_config=str(ssh_folder.config))
        hosts = [Host(name, gpus=(), python=sys.executable) for name in names]
        found = await diagnose(hosts, settings, nobody, AgentOpener(settings, lambda: standin_pack))
    assert any(one.check == "sessions" and "dropped" in one.text for one in found), found
    assert [one for one in found if one.verdict is Verdict.BAD] == []


async def test_doctor_names_limits_that_will_end_an_agent_and_what_to_set(
    ssh_folder: SshHosts,
) -> None:
    with own_sshd(ssh_folder, "", "ssh1"):
        settings = FleetSettings("test", ssh_config=str(ssh_folder.config))
        host = Host("ssh1", gpus=(), python=sys.executable, setup="ulimit -t 5000")
        found = await diagnose([host], settings, nobody)
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
    settings = FleetSettings("test", ssh_config=str(asyncssh_hosts.config))
    for number, lie in enumerate(LIES.values()):
        liar = tmp_path / f"liar{number}"
        greeting = remote.GREETING.decode()
        liar.write_text(LIAR.format(python=sys.executable, greeting=greeting, lie=lie))
        liar.chmod(0o700)
        hosts = [Host("ssh1", python=str(liar)), Host("ssh2", gpus=())]
        shared = AgentOpener(settings, lambda: standin_pack)
        found = await diagnose(hosts, settings, nobody, shared)
        bad = [(one.host, one.text) for one in found if one.verdict is Verdict.BAD]
        assert [host for host, _ in bad] == ["ssh1"], (lie, bad)
        assert "is not what it says" in bad[0][1]


async def test_doctor_says_where_a_host_fails_and_goes_on_with_the_others(
    asyncssh_hosts: SshHosts, standin_pack: Pack
) -> None:
    settings = FleetSettings("test", ssh_config=str(asyncssh_hosts.config))
    hosts = [Host("ssh1", python="/no/python"), Host("nowhere.invalid"), Host("ssh2", gpus=())]
    shared = AgentOpener(settings, lambda: standin_pack)
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
    assert outcome == str(python)
    wheels_only = f"--python {python} --only-binary :all:"
    installed = f"installing with pip install {wheels_only} {' '.join(pins())}"
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
    settings = FleetSettings("test", ssh_config=str(ssh_folder.config))
    folder = ssh_folder.folder / "wheels"
    lock = make_wheels(folder, dask=settings.versions.dask, distributed=settings.versions.dask)
    (folder / "lock.txt").write_text(lock)
    source = read_source(folder / "lock.txt", folder, "", False)
    told: list[str] = []
    outcomes = await bootstrap(
        [Host("ssh1", gpus=()), Host("ssh2", gpus=())],
        settings,
        tell=lambda host, line: told.append(line),
        ask=nobody,
        source=source,
    )
    python = home / ".local/share/gputui/env/bin/python"
    assert list(outcomes) == [str(python)] * 2, (outcomes, told)
    assert sum(line.startswith("making ") for line in told) == 1
    assert sum(line.endswith("is ready") for line in told) == 1
    assert list(python.parent.parent.glob(f"lib/*/*/dask-{settings.versions.dask}.dist-info"))


async def test_a_wheel_that_is_not_the_locked_one_is_refused(
    start_asyncssh: Start, ssh_folder: SshHosts
) -> None:
    home = home_with_uv(ssh_folder.folder)
    (ssh_folder.folder / "bin" / "uv").write_text(REFUSING_UV.format(python=sys.executable))
    start_asyncssh("ssh1", environ=home)
    settings = FleetSettings("test", ssh_config=str(ssh_folder.config))
    told: list[str] = []
    (outcome,) = await bootstrap(
        [Host("ssh1", gpus=())],
        settings,
        tell=lambda host, line: told.append(line),
        ask=nobody,
        source=PackageSource(lock="dask==1 --hash=sha256:00"),
    )
    assert any("--require-hashes" in line for line in told)
    assert outcome.reason == "the packages could not be installed: see above"


UNREACHED = """#!/bin/sh
case $1 in
venv) mkdir -p "$5/bin"; ln -s "{python}" "$5/bin/python";;
pip) echo "  error sending request for url (https://pypi.org/simple/dask/)"; exit 2;;
esac
"""


async def test_a_host_that_reaches_no_index_is_said_to_have_a_pip_conf_of_its_own(
    start_asyncssh: Start, ssh_folder: SshHosts
) -> None:
    home = home_with_uv(ssh_folder.folder)
    (ssh_folder.folder / "bin" / "uv").write_text(UNREACHED.format(python=sys.executable))
    conf = ssh_folder.folder / "home" / ".config" / "pip" / "pip.conf"
    conf.parent.mkdir(parents=True)
    conf.write_text("[global]\nindex-url = https://mirror.lab/simple\n")
    start_asyncssh("ssh1", environ=home)
    settings = FleetSettings("test", ssh_config=str(ssh_folder.config))
    (outcome,) = await bootstrap(
        [Host("ssh1", gpus=())], settings, tell=lambda host, line: None, ask=nobody
    )
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
    lies, honest = [], home_with_uv(ssh_folder.folder)
    for number, lie in enumerate(BOOTSTRAP_LIES.values()):
        binaries = ssh_folder.folder / f"liar{number}"
        binaries.mkdir()
        for name in (f"python{sys.version_info.major}.{sys.version_info.minor}", "python3"):
            (binaries / name).write_text(f"#!{sys.executable}\nprint({lie!r})\n")
            (binaries / name).chmod(0o700)
        path = f"{binaries}:{os.environ['PATH']}"
        start_asyncssh(f"liar{number}", environ={"HOME": honest["HOME"], "PATH": path})
        lies.append(Host(f"liar{number}", gpus=()))
    start_asyncssh("honest", environ=honest)
    settings = FleetSettings("test", ssh_config=str(ssh_folder.config))
    found = await bootstrap(
        [*lies, Host("honest", gpus=())], settings, tell=lambda host, line: None, ask=nobody
    )
    assert [isinstance(each, str) for each in found] == [False] * len(lies) + [True], found
    assert all(outcome.reason for outcome in found[:-1])


def test_a_lock_of_another_dask_is_refused(tmp_path: Path) -> None:
    (tmp_path / "lock.txt").write_text("dask==1.0 \\\n  --hash=sha256:00\n")
    with pytest.raises(UsageError, match=r"lock.txt: dask 1.0, but .* is used here"):
        read_source(tmp_path / "lock.txt", None, "", False)


def test_bootstrap_without_a_terminal_asks_for_yes(asyncssh_hosts: SshHosts) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "gputui", "bootstrap", "ssh1"],
        env={**os.environ, **asyncssh_hosts.environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=30,
    )
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


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Path]:
    """A folder for a file system of its own."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount")
    yield tmp_path
    subprocess.run(["umount", tmp_path])


def failure(home: Path) -> tuple[str, str]:
    """Return the reason and the hint of a bootstrap below a folder."""
    order = {
        "version": f"{sys.version_info.major}.{sys.version_info.minor}",
        "environment": str(home / "share/env"),
        "packages": ["dask"],
        "gpus": False,
        "cupy": "",
        "lock": "",
        "wheels": [],
        "index": "http://127.0.0.1:9",
        "host_settings": False,
        "builds": False,
    }
    command = [sys.executable, preparing.__file__]
    environ = {**os.environ, "PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, input=json.dumps(order) + "\n", env=environ,
                          capture_output=True, text=True)  # fmt: skip
    assert "Traceback" not in done.stderr
    last = json.loads(done.stdout.splitlines()[-1])
    return last["failed"], last["hint"]


def test_a_full_disk_is_the_reason_and_no_missing_package(mounted: Path) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "none", mounted], check=True)
    reason, hint = failure(mounted)
    assert reason == "the environment could not be made: see above"
    assert hint.startswith("free some disk space there: ") and "MiB are left" in hint


def test_a_home_that_is_read_only_is_named_with_another_way(mounted: Path) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "none", mounted], check=True)
    reason, hint = failure(mounted)
    assert reason == f"{mounted}/share: Read-only file system"
    assert "python=" in hint
