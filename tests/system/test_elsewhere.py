"""A head on another machine, over SSH: started there, seen, used and stopped from here."""

import contextlib
import fcntl
import getpass
import json
import os
import signal
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import dask
import pytest

from gputui.client.remote_head import RemoteHead, nobody
from gputui.errors import UsageError
from gputui.fleet.stages import Question
from gputui.model.snapshot import RunState, RunStatus
from gputui.protocol.frontend import ReportRun, SnapshotTaken
from tests.processes import lives, processes_of
from tests.sshd import AsyncsshServer, Namespaces, SshHost, SshHosts, free_port, wait_for_ssh
from tests.system import hang
from tests.system.conftest import BOUND_S, GONE_S, Command, a_command, found, wait_until
from tests.system.lab import HERE
from tests.system.parts import parts_of
from tests.terminals import Emulated


class There:
    """A running cluster on the machine `login`, and the command here."""

    def __init__(self, gputui: Command, login: str, home: Path) -> None:
        self.gputui = gputui
        self.login = login
        self.home = home
        self.name = f"{login}:lab"

    @property
    def connection_file(self) -> dict[str, object]:
        (path,) = self.home.glob("gputui/*.json")
        return json.loads(path.read_text())


@pytest.fixture(scope="module")
def there(openssh_hosts: SshHosts, tmp_path_factory: pytest.TempPathFactory) -> Iterator[There]:
    with a_command(tmp_path_factory.mktemp("here")) as gputui:
        gputui.env |= openssh_hosts.environment
        host = openssh_hosts.hosts[0]
        home = openssh_hosts.folder / host.name
        served = ("--dashboard", "0", "--metrics", "0")
        done = gputui.ok("up", HERE, "--name", "lab", "--on", host.name, *served)
        assert done.stdout.startswith("lab: 2 workers at tls://")
        assert f"gputui attach {host.name}:lab; gputui down {host.name}:lab" in done.stderr
        for each in ("dashboard", "metrics"):
            assert f"{each} on {host.name} at http://127.0.0.1:" in done.stderr
        there = There(gputui, host.name, home)
        cluster_id = str(there.connection_file["cluster_id"])
        try:
            yield there
        finally:
            stopped = gputui("down", there.name)
            with contextlib.suppress(AssertionError):
                wait_until(lambda: not processes_of(cluster_id), GONE_S)
            left = processes_of(cluster_id)
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        assert (stopped.returncode, stopped.stdout) == (0, f"{there.name}: stopped\n")
        assert not left


@pytest.mark.slow
def test_a_run_uses_a_cluster_on_another_machine_and_leaves_it_running(there: There) -> None:
    done = there.gputui("--attach", there.name, "--run", "random-sum", "-p", "size=200", "--json")
    assert done.returncode == 0, done.stderr
    assert f"metrics on {there.login} at http://127.0.0.1:" in done.stderr
    workers = json.loads(done.stdout)["workers"]
    assert [each["name"] for each in workers] == ["localhost:cpu0", "localhost:cpu1"]
    assert there.connection_file["pid"]
    assert there.gputui.files() == []


PYTHON = """
import sys, gputui
from urllib.request import urlopen
from distributed import Client
with gputui.connect(sys.argv[1]) as cluster, Client(cluster) as client:
    dashboard = urlopen(cluster.dashboard_link).status
    print(cluster.name, client.submit(sum, [1, 2]).result(), cluster.scheduler_address, dashboard)
"""


@pytest.mark.slow
def test_python_connects_to_a_cluster_on_another_machine(there: There) -> None:
    words = (sys.executable, "-W", "error", "-c", PYTHON, there.name)
    done = there.gputui.run_other(*words, timeout_s=BOUND_S)
    assert done.returncode == 0, done.stderr
    name, result, address, dashboard = done.stdout.split()
    assert (name, result, dashboard) == ("lab", "3", "200")
    assert address.startswith("tls://127.0.0.1:")
    assert address != there.connection_file["address"]


@pytest.mark.slow
def test_why_a_cluster_on_another_machine_is_stuck_is_said_here(there: There) -> None:
    done = there.gputui.ok("why", there.name, "--bundle", "b.tar.gz")
    assert "it waits for a client" in done.stdout
    with tarfile.open(there.gputui.folder / "b.tar.gz") as bundle:
        assert "gputui-why/snapshot.json" in bundle.getnames()


@pytest.mark.slow
@pytest.mark.usefixtures("runtime")
async def test_the_last_report_of_a_run_arrives_before_the_connection_closes(
    there: There, openssh_hosts: SshHosts
) -> None:
    with dask.config.set({"gputui.ssh.config": str(openssh_hosts.config)}):
        head = RemoteHead(there.login, "lab", nobody)
    ids = [f"reported{number}" for number in range(8)]
    for id in ids:
        async with await head.open(frontend="run") as connection:
            connection.send(ReportRun(RunStatus(id, "smoke", (), RunState.DONE, time.time())))
    async with await head.open(frontend="command", snapshots=True) as connection:
        snapshot = (await connection.received(SnapshotTaken)).snapshot
    assert {run.id for run in snapshot.runs} >= {*ids}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("{}:other", "no cluster is called 'other'; running on {}: "),
        ("nowhere@{}.invalid:lab", "resolve"),
    ],
)
def test_a_name_that_means_nothing_there_is_refused_in_words(
    there: There, name: str, says: str
) -> None:
    done = there.gputui("--attach", name.format(there.login), "--run", "smoke")
    assert done.returncode in (2, 3)
    assert says.format(there.login) in done.stderr
    assert "Traceback" not in done.stderr


def test_the_screen_shows_it_and_comes_back_when_the_connection_was_cut(
    there: There, openssh_hosts: SshHosts
) -> None:
    terminal = there.gputui.open("attach", there.name)
    terminal.sees("cpu1")
    terminal.press("q", f"{there.name} comes back")
    terminal.press("c")
    before = sessions(openssh_hosts)
    for pid in before:
        os.kill(pid, signal.SIGKILL)
    found(lambda: sessions(openssh_hosts) - before)
    assert lives(terminal.pid)
    terminal.kill()
    assert parts_of(str(there.connection_file["cluster_id"]))["worker"]


@pytest.mark.slow
def test_a_run_whose_ssh_connection_is_cut_says_that_the_cluster_goes_on(
    there: There, openssh_hosts: SshHosts
) -> None:
    preset = ("--run", f"{hang.__file__}:PRESET", "-p", "task=wait")
    folder = there.gputui.folder
    process = there.gputui.start("--attach", there.name, *preset, "-p", f"folder={folder}")
    found(lambda: (folder / "hangs").exists())
    for pid in sessions(openssh_hosts):
        os.kill(pid, signal.SIGKILL)
    _, said = process.communicate(timeout=BOUND_S)
    assert process.returncode == 3
    words = f"the SSH connection to {there.login} was cut; the cluster lab goes on there"
    assert f"{words}: gputui attach {there.name}" in said
    assert "Traceback" not in said
    assert there.connection_file["pid"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("setting", "option"),
    [
        ("AllowTcpForwarding no", "AllowTcpForwarding"),
        ("PermitOpen none", "PermitOpen"),
        ("AllowStreamLocalForwarding no", "AllowStreamLocalForwarding"),
        ("DisableForwarding yes", "DisableForwarding"),
    ],
)
def test_a_login_that_forbids_forwarding_is_refused_before_anything_starts_there(
    gputui: Command, ssh_folder: SshHosts, setting: str, option: str
) -> None:
    host = SshHost("login", "127.0.0.9", free_port("127.0.0.9"), getpass.getuser())
    ssh_folder.describe(host)
    ssh_folder.start_sshd(host, settings=f"{setting}\n", forwarding="")
    gputui.env |= ssh_folder.environment
    try:
        wait_for_ssh(ssh_folder, host)
        done = gputui("up", HERE, "--name", "lab", "--on", "login")
        assert (done.returncode, done.stdout) == (3, "")
        assert "forbids forwarding" in done.stderr and option in done.stderr
        assert not [*(ssh_folder.folder / "login").rglob("*.json")]
    finally:
        ssh_folder.stop()


def test_where_gputui_was_looked_for_there_is_said(
    openssh_hosts: SshHosts, gputui: Command
) -> None:
    gputui.env |= openssh_hosts.environment
    up = ("up", HERE, "--on", openssh_hosts.hosts[2].name)
    flag = gputui(*up, "--remote-gputui", "/none")
    gputui.env["DASK_GPUTUI__SSH__REMOTE_GPUTUI"] = "/none"
    for done in (flag, gputui(*up)):
        assert (done.returncode, done.stdout) == (3, "")
        assert "no gputui there (looked for /none)" in done.stderr


@pytest.mark.slow
def test_a_network_that_is_silent_is_a_screen_that_comes_back_and_a_cluster_that_goes_on(
    gputui: Command, namespace_hosts: Namespaces
) -> None:
    gputui.env |= namespace_hosts.environment
    host = namespace_hosts.hosts[0]
    name = f"{host.name}:frozen"
    gputui.ok("up", HERE, "--name", "frozen", "--on", host.name)
    try:
        terminal = gputui.open("attach", name)
        terminal.sees("cpu1")
        before = sessions(namespace_hosts)
        namespace_hosts.cut(host)
        try:
            terminal.sees("goes on there")
            wait_until(lambda: not [*gputui.runtime.rglob("remote-*")])  # it is given up
        finally:
            namespace_hosts.mend(host)
        found(lambda: sessions(namespace_hosts) - before)
        assert lives(terminal.pid)
        terminal.kill()
        assert gputui("ls", host.name).stdout.splitlines()[1].split()[:3] == ["frozen", "2", "1"]
    finally:
        stopped = gputui("down", name)
    assert stopped.returncode == 0, stopped.stderr


@pytest.fixture
def login(
    gputui: Command, start_asyncssh: Callable[..., AsyncsshServer], ssh_folder: SshHosts
) -> AsyncsshServer:
    """A machine that wants a password, and whose host key is not known."""
    server = start_asyncssh("login", lets_in=False, passwords={getpass.getuser(): "secret"})
    ssh_folder.known_hosts.write_text("")
    gputui.env |= ssh_folder.environment
    return server


def logged_in(gputui: Command, then: str) -> Emulated:
    """Return a terminal with a screen of which all questions were answered."""
    terminal = gputui.open("attach", "login:lab")
    terminal.sees("SHA256:", "[y/N]:")
    terminal.press("y\n", f"{getpass.getuser()}@login: Password: ")
    terminal.press("secret\n", then)
    return terminal


@pytest.mark.usefixtures("login")
def test_a_screen_elsewhere_asks_for_host_key_and_password_as_hosts_do(gputui: Command) -> None:
    terminal = logged_in(gputui, "no cluster ")  # of this machine, where others may run
    assert terminal.exit_status == 2


@pytest.mark.slow
def test_a_screen_whose_login_asks_again_shows_the_question_and_comes_back(
    gputui: Command, login: AsyncsshServer
) -> None:
    there = replace(gputui, env={**gputui.env, "XDG_RUNTIME_DIR": str(login.hosts.folder)})
    there.ok("up", HERE, "--name", "lab")
    try:
        terminal = logged_in(gputui, "cpu1")
        login.drop_connections()
        terminal.sees("login: password", "[escape] later")
        terminal.type(b"secret\r")
        found(lambda: [*gputui.runtime.rglob("remote-*.sock")])
        terminal.sees_not("[escape] later")
        terminal.press("q", "leave it running")
        terminal.press("l")
        assert terminal.exit_status == 0
    finally:
        there.ok("down", "lab")


async def test_a_passphrase_is_asked_for_once_however_often_the_connection_is_lost(
    asyncssh_hosts: SshHosts,
) -> None:
    asyncssh_hosts.encrypt_client_key("open")
    asked: list[str] = []

    async def ask(question: Question) -> str | None:
        asked.append(question.kind)
        return "open"

    with dask.config.set({"gputui.ssh.config": str(asyncssh_hosts.config)}):
        head = RemoteHead("ssh1", "no-such-cluster", ask)
    for _ in range(2):
        with pytest.raises(UsageError, match="cluster"):
            await head.reach()
        await head.close()  # as a lost connection
    assert asked == ["passphrase"]


@pytest.mark.slow
def test_clusters_elsewhere_are_listed(there: There) -> None:
    rows = json.loads(there.gputui("ls", there.login, "--json").stdout)
    pid = there.connection_file["pid"]  # a user's own clusters on this machine are listed, too
    (row,) = [row for row in rows if row["pid"] == pid]
    assert (row["name"], row["workers"], row["hosts"]) == ("lab", 2, 1)
    listed = there.gputui("ls", there.name)
    assert listed.stdout.splitlines()[1].split()[:2] == ["lab", "2"], listed.stderr
    none = there.gputui("ls", f"{there.login}:other")
    assert (none.returncode, none.stdout) == (0, "")
    assert none.stderr == f"no cluster runs at {there.login}:other\n"
    assert there.gputui.files() == []


@pytest.mark.slow
def test_a_cluster_elsewhere_that_does_not_answer_hides_no_other(there: There) -> None:
    path = there.home / "gputui" / "dead.json"
    path.write_text(json.dumps(there.connection_file | {"name": "dead", "socket": "/dev/null"}))
    with path.open("r+") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        done = there.gputui("ls", there.login)
    path.unlink()
    rows = {line.split()[0]: line for line in done.stdout.splitlines()}
    assert "lab" in rows and "does not answer" in rows["dead"], done.stderr


@pytest.mark.slow
def test_hints_about_hosts_behind_a_login_node_say_where_they_help(
    openssh_hosts: SshHosts, gputui: Command
) -> None:
    gputui.env |= openssh_hosts.environment
    login = openssh_hosts.hosts[1].name
    done = gputui("up", "nowhere.invalid gpus=none", "--name", "lab", "--on", login)
    assert done.returncode == 3
    assert f"gputui: these commands are for a shell on {login}" in done.stderr, done.stderr


@pytest.mark.slow
def test_a_start_there_that_is_interrupted_leaves_nothing_there(
    openssh_hosts: SshHosts, gputui: Command
) -> None:
    gputui.env |= openssh_hosts.environment
    host = openssh_hosts.hosts[1]
    folder = openssh_hosts.folder / host.name / "gputui"
    process = gputui.start("up", HERE, "--name", "lab", "--on", host.name)
    started = found(
        lambda: (
            [*folder.glob("*.json")]
            and [each for each in folder.glob("*.sock") if not each.name.startswith("agent-")]
        )
    )
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=BOUND_S)
    assert (process.returncode, "interrupted" in said) == (130, True)
    wait_until(lambda: not processes_of(started[0].stem), GONE_S)
    wait_until(lambda: not [*folder.glob("*.json")], GONE_S)


def sessions(hosts: SshHosts) -> set[int]:
    """Return the processes of the first sshd that serve a connection."""
    listener = hosts.processes[0].pid
    children = Path(f"/proc/{listener}/task/{listener}/children").read_text().split()
    return {int(pid) for pid in children}
