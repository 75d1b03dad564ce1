"""Hosts over SSH whose connection is cut, or whose head is lost: the lease, and nothing left."""

import json
import os
import signal
from pathlib import Path

import pytest

from tests.processes import parent_of
from tests.sshd import Namespaces, SshHosts
from tests.system import hang
from tests.system.conftest import GONE_S, Command, found, wait_until
from tests.system.parts import Run

WORKER = "gpus=none workers=1 nthreads=1 memory=512MiB"


def hosts_file(gputui: Command, hosts: SshHosts, *, count: int = 1, lease_s: int = 2) -> str:
    """Return a file with some of these hosts, which keep their scratch where we look."""
    gputui.env |= {**hosts.environment, "DASK_GPUTUI__LEASE": str(lease_s)}
    text = hosts.text(f"{WORKER} env.TMPDIR={gputui.runtime}")
    path = gputui.folder / "hosts.txt"
    path.write_text("".join(text.splitlines(keepends=True)[:count]))
    return str(path)


def cut(run: Run) -> None:
    """End the host's end of the SSH connection."""
    os.kill(parent_of(found(lambda: run.pid_of("relay"))), signal.SIGKILL)


def sockets(hosts: SshHosts) -> list[Path]:
    return [path for host in hosts.hosts for path in hosts.folder.glob(f"{host.name}/gputui/*")]


def ends(run: Run, gputui: Command, hosts: SshHosts, status: int, says: str = "") -> str:
    """Wait for the command to end, and until nothing is left on any host; return its stdout."""
    code, out, err = run.end()
    assert (code, says in err) == (status, True), err
    run.assert_nothing_left()
    gputui.assert_nothing_left()
    assert sockets(hosts) == []
    return out


def test_a_connection_cut_at_the_start_is_told(gputui: Command, openssh_hosts: SshHosts) -> None:
    run = Run(gputui, hosts_file(gputui, openssh_hosts), "easy")
    cut(run)
    ends(run, gputui, openssh_hosts, 3, "ssh1: ")


@pytest.mark.slow
def test_hosts_that_are_being_reached_when_the_scheduler_dies_are_let_go(
    gputui: Command, openssh_hosts: SshHosts
) -> None:
    run = Run(gputui, hosts_file(gputui, openssh_hosts, count=2), "easy")
    found(lambda: run.pid_of("relay"))
    os.kill(found(lambda: run.pid_of("scheduler")), signal.SIGKILL)
    ends(run, gputui, openssh_hosts, 3, "the scheduler was killed by SIGKILL")


@pytest.mark.slow
def test_a_connection_cut_while_it_computes_is_made_again_and_no_task_notices(
    gputui: Command, openssh_hosts: SshHosts
) -> None:
    run = Run(gputui, hosts_file(gputui, openssh_hosts, lease_s=8), "wait")
    worker, before = run.hanging_worker(), run.pid_of("relay")
    cut(run)
    log = gputui.folder / "state" / "gputui" / "log" / "hosts.log"
    wait_until(lambda: log.read_text().count("ssh1: ready") == 2)
    wait_until(lambda: run.pid_of("relay") not in (None, before))
    assert run.pid_of("worker") == worker
    (gputui.folder / "go").touch()
    assert json.loads(ends(run, gputui, openssh_hosts, 0))["restarts"] == 0


@pytest.mark.slow
def test_a_connection_cut_at_the_stop_leaves_nothing(
    gputui: Command, openssh_hosts: SshHosts
) -> None:
    run = Run(gputui, hosts_file(gputui, openssh_hosts), "gil")
    run.hanging_worker()
    run.process.send_signal(signal.SIGINT)
    wait_until(lambda: not run.pid_of("scheduler"))
    cut(run)
    ends(run, gputui, openssh_hosts, 130, "interrupted")


@pytest.mark.slow
@pytest.mark.parametrize("task", [pytest.param("gil", marks=pytest.mark.long), "child"])
def test_hosts_whose_head_is_killed_end_everything_with_the_lease(
    gputui: Command, namespace_hosts: Namespaces, task: str
) -> None:
    run = Run(gputui, hosts_file(gputui, namespace_hosts), task)
    run.hanging_worker()
    os.kill(found(lambda: run.pid_of("head")), signal.SIGKILL)
    ends(run, gputui, namespace_hosts, 3, "head is gone")


@pytest.mark.slow
def test_a_host_off_the_network_ends_all_with_the_lease_and_another_computes(
    gputui: Command, namespace_hosts: Namespaces
) -> None:
    run = Run(gputui, hosts_file(gputui, namespace_hosts, count=2), "child")
    worker = run.hanging_worker()
    host = next(one for one in namespace_hosts.hosts if worker in namespace_hosts.processes_of(one))
    namespace_hosts.cut(host)
    try:
        wait_until(lambda: not run.on_hosts() & {*namespace_hosts.processes_of(host)}, GONE_S)
        status, out, err = run.end()
    finally:
        namespace_hosts.mend(host)
    assert status == 0, err
    assert json.loads(out)["result"] == {"value": hang.VALUE}
    run.assert_nothing_left()
