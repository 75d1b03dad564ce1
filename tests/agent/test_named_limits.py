"""Limits that end or throttle an agent are named, or end it; each is made for real."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from gputui.agent.facts import logind_kills
from gputui.protocol.agent import AgentEnding
from tests.agent.driving import GROUPS, Driver, control_group
from tests.sshd import unavailable

AS_NOBODY = "--reuid 65534 --regid 65534 --clear-groups"
SPACE = ("unshare", "-m") if os.getuid() == 0 and shutil.which("unshare") else ()
"""What is mounted is so for the process only."""
SAY = """
import json, sys
from pathlib import Path
from gputui.agent.facts import limits
print(json.dumps([*limits(Path(sys.argv[1]), int(sys.argv[2]))]))
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that every user may write to, as pytest's own are not."""
    with tempfile.TemporaryDirectory(prefix="limits-") as name:
        Path(name).chmod(0o777)
        yield Path(name)


def named(before: str, scratch: Path, gpus: int = 0) -> dict[str, str]:
    """Return the limits that a process finds after a line of shell."""
    command = [sys.executable, "-c", SAY, str(scratch), str(gpus)]
    done = subprocess.run(
        [*SPACE, "sh", "-c", f'{before}; exec "$@"', "sh", *command],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def test_where_nothing_is_limited_nothing_is_said(tmp_path: Path) -> None:
    assert named("ulimit -t unlimited", tmp_path) == {}


@pytest.mark.skipif(not shutil.which("setpriv"), reason="needs setpriv")
def test_a_limit_on_a_users_threads_is_named_where_too_few_are_left(folder: Path) -> None:
    if os.getuid() != 0:
        unavailable("another user needs root")
    nobody = f'prlimit --pid $$ --nproc=%d; set -- setpriv {AS_NOBODY} "$@"'
    (text,) = named(nobody % 100, folder)
    assert text == "this user may run 99 more processes and threads (ulimit -u 100)"
    assert named(nobody % 200, folder) == {}
    assert "(ulimit -u 200)" in "".join(named(nobody % 200, folder, 8))


SIZE = str(700 * 2**20)


@pytest.mark.parametrize(
    ("controller", "unified", "first", "text"),
    [
        (
            "pids",
            {"pids.max": "50"},
            {"pids.max": "50"},
            "its control group may have 49 more processes and threads (pids.max)",
        ),
        (
            "memory",
            {"memory.max": SIZE},
            {"memory.limit_in_bytes": SIZE},
            "its control group may have 700 MiB of memory (memory.max)",
        ),
        (
            "cpu",
            {"cpu.max": "50000 100000"},
            {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "50000"},
            "its control group may use 0.5 CPUs (cpu.max), so workers are throttled",
        ),
    ],
)
def test_what_a_control_group_may_have_is_named_where_that_is_little(
    tmp_path: Path, controller: str, unified: dict[str, str], first: dict[str, str], text: str
) -> None:
    with control_group(controller, unified, first) as made:
        assert list(named(f"echo $$ > {made}/cgroup.procs", tmp_path)) == [text]


def test_a_scratch_folder_without_programs_is_named(tmp_path: Path) -> None:
    if os.getuid() != 0 or not shutil.which("unshare"):
        unavailable("a mount needs root and unshare")
    own = tmp_path / "own"
    mount = f"mount -t tmpfs -o noexec none {tmp_path} && mkdir {own}"
    ((text, hint),) = named(mount, own).items()
    assert text == f"no program can be run from {tmp_path}, which is mounted noexec"
    assert "env.TMPDIR=" in hint


MAIN, SITE = "etc/systemd/logind.conf", "usr/lib/systemd/logind.conf.d/20-site.conf"
OVER_SITE = "etc/systemd/logind.conf.d/20-site.conf"
YES, NO = (f"[Login]\nKillUserProcesses={word}\n" for word in ("yes", "no"))


@pytest.mark.parametrize(
    ("files", "kills"),
    [
        ({}, False),
        ({MAIN: "[Login]\n#KillUserProcesses=yes\n"}, False),
        ({MAIN: YES}, True),
        ({SITE: YES, MAIN: NO}, True),
        ({SITE: YES, OVER_SITE: NO}, False),
    ],
)
def test_logind_is_read_as_it_reads_its_files(
    tmp_path: Path, files: dict[str, str], kills: bool
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert logind_kills(tmp_path) is kills


def test_logind_is_named_where_it_ends_what_a_login_started(folder: Path) -> None:
    top = next((each for each in (GROUPS / "systemd", GROUPS) if each.is_dir()), None)
    if os.getuid() != 0 or top is None or not shutil.which("unshare"):
        unavailable("a session of logind's needs root, control groups and unshare")
    (folder / "systemd").mkdir()
    (folder / "systemd/logind.conf").write_text(YES)
    scope = top / f"session-{os.getpid()}.scope"
    scope.mkdir()
    login = (
        f"echo $$ > {scope}/cgroup.procs; mkdir -p /etc/systemd; "
        f'mount --bind {folder}/systemd /etc/systemd; set -- setpriv {AS_NOBODY} "$@"'
    )
    try:
        ((text, hint),) = named(login, folder).items()
    finally:
        scope.rmdir()
    assert text.startswith("logind kills all that a login started")
    assert "KillUserProcesses=no" in hint


OTHER = 54321
"""A user without any process: the limit counts all of a user's."""


@pytest.fixture
def limited(tmp_path: Path) -> Iterator[Driver]:
    """An agent of a user of its own."""
    if os.geteuid() != 0:
        pytest.skip("only root can be another user")
    driver = Driver(tmp_path)
    with tempfile.TemporaryDirectory(prefix="gt-") as folder:
        os.chown(folder, OTHER, OTHER)
        driver.env |= {"TMPDIR": folder, "HOME": folder}
        yield driver


def may_start(processes: int) -> tuple[str, ...]:
    """Return a command that starts another as that user, who may still read this one's files."""
    readable = ("--inh-caps=+dac_override", "--ambient-caps=+dac_override")
    user = ("setpriv", f"--reuid={OTHER}", "--clear-groups", *readable)
    return (*user, "prlimit", f"--nproc={processes}")


async def connect_in_vain(driver: Driver) -> None:
    with pytest.raises(AssertionError, match="the stream ended"):
        await driver.connect()
    await driver.shut_down()


def left(driver: Driver) -> list[str]:
    return [str(path) for path in Path(driver.env["TMPDIR"]).glob("gputui-*/*")]


async def test_an_agent_that_cannot_be_forked_leaves_nothing(limited: Driver) -> None:
    limited.before = may_start(1)
    await connect_in_vain(limited)
    assert left(limited) == []


async def test_an_agent_that_can_start_no_thread_ends_and_says_so(limited: Driver) -> None:
    limited.before = may_start(2)
    await connect_in_vain(limited)
    (ending,) = (each for each in limited.seen if isinstance(each, AgentEnding))
    assert "this user may run no more processes and threads there" in ending.reason
    assert left(limited) == []
