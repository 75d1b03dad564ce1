"""Hosts behind a firewall, each in a network of its own: only what is let through is used."""

import contextlib
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.processes import parent_of
from tests.sshd import Namespaces, SshHost
from tests.system import hang
from tests.system.conftest import GONE_S, Command, found, wait_until
from tests.system.parts import Run, cluster_of, parts_of

WORKER = "gpus=none workers=2 nthreads=1 memory=512MiB"
SUM = ("--run", "random-sum", "-p", "size=2000", "--json", "--quiet")
SVD = ("--run", "svd", "-p", "rows=20000", "-p", "cols=50", "--json")
HOLD = "import socket, sys; s = socket.create_server(('', int(sys.argv[1]))); print(flush=True); "


def lines(gputui: Command, hosts: Namespaces, *options: str) -> str:
    """Return a hosts file with a line for each of these options."""
    gputui.env |= {
        **hosts.environment,
        "DASK_GPUTUI__LEASE": "4",
        "DASK_GPUTUI__TRANSFERS": "bytes",  # they have memory in common, which goes round firewalls
    }
    named = zip(hosts.hosts, options, strict=False)
    path = gputui.folder / "hosts.txt"
    tmpdir = f"env.TMPDIR={gputui.runtime}"
    path.write_text("".join(f"{host.name} {WORKER} {tmpdir} {each}\n" for host, each in named))
    return str(path)


def workers_of(gputui: Command) -> list[str]:
    """Return where the workers of the last run were."""
    return [line.split()[-1] for line in log(gputui).splitlines() if ": registered: tls://" in line]


def log(gputui: Command) -> str:
    return (gputui.folder / "state" / "gputui" / "log" / "hosts.log").read_text()


@contextlib.contextmanager
def taken(hosts: Namespaces, host: SshHost, port: int) -> Iterator[None]:
    """Have another program of a host listen on a port."""
    code = f"{HOLD} sys.stdin.read()"
    command = ["ip", "netns", "exec", hosts.namespace(host), sys.executable, "-c", code, str(port)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout and process.stdout.readline()
        yield


@pytest.mark.slow
def test_workers_listen_on_the_ports_of_their_line_but_for_one_that_is_taken(
    gputui: Command, namespace_hosts: Namespaces
) -> None:
    host, other, _ = namespace_hosts.hosts
    file = lines(gputui, namespace_hosts, *["worker-ports=40000-40003 interface=eth0"] * 2)
    with (
        namespace_hosts.firewall(host, "40000-40003"),
        namespace_hosts.firewall(other, "40000-40003"),
        taken(namespace_hosts, host, 40001),
    ):
        done = gputui(file, *SUM)
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["workers"]) == 4, log(gputui)
    listened = set(workers_of(gputui))
    assert {f"tls://{host.address}:40000", f"tls://{host.address}:40002"} < listened
    assert {f"tls://{other.address}:40000", f"tls://{other.address}:40001"} < listened
    gputui.assert_nothing_left()


@pytest.mark.slow
def test_workers_behind_a_router_are_reached_at_the_address_that_it_forwards(
    gputui: Command, namespace_hosts: Namespaces
) -> None:
    host, _, _ = namespace_hosts.hosts
    outside = f"{namespace_hosts.network}.99"
    rules = f"""
    table ip nat {{
      chain prerouting {{
        type nat hook prerouting priority -100
        ip daddr {outside} tcp dport 40000-40002 dnat to {host.address}
      }}
    }}
    """
    route = ["ip", "route", "replace", f"{outside}/32", "via", host.address]
    file = lines(gputui, namespace_hosts, f"contact={outside} worker-ports=40000-40002")
    subprocess.run(route, check=True)
    try:
        with namespace_hosts.rules(host, rules):
            done = gputui(file, *SUM)
    finally:
        subprocess.run([*route[:2], "del", *route[3:]], check=True)
    assert done.returncode == 0, done.stderr
    assert set(workers_of(gputui)) == {f"tls://{outside}:40000", f"tls://{outside}:40001"}
    gputui.assert_nothing_left()


@pytest.mark.slow
def test_hosts_that_let_in_ssh_only_compute_together_through_this_machine(
    gputui: Command, namespace_hosts: Namespaces
) -> None:
    first, second, _ = namespace_hosts.hosts
    file = lines(gputui, namespace_hosts, "", "")
    with namespace_hosts.firewall(first, out=False), namespace_hosts.firewall(second, out=False):
        done = gputui(file, *SVD)
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["workers"]) == 4, log(gputui)
    assert all(each.startswith("tls://127.0.0.1:") for each in workers_of(gputui))
    assert "host1: ready: its workers go through its SSH connection: " in log(gputui)
    assert log(gputui).count("goes by way of this machine") == 1  # the second one says so
    gputui.assert_nothing_left()


@pytest.fixture
def shut(gputui: Command, namespace_hosts: Namespaces) -> Iterator[str]:
    """A hosts file with one host, which lets in SSH only, and connects to nothing."""
    with namespace_hosts.firewall(namespace_hosts.hosts[0], out=False):
        yield lines(gputui, namespace_hosts, "tunnel=true")
    gputui.assert_nothing_left()


@pytest.mark.slow
def test_a_head_that_is_killed_leaves_nothing_on_a_host_behind_ssh(
    gputui: Command, shut: str
) -> None:
    run = Run(gputui, shut, "child")
    run.hanging_worker()
    os.kill(found(lambda: run.pid_of("head")), signal.SIGKILL)
    status, _, err = run.end()
    assert (status, "head is gone" in err) == (3, True), err
    run.assert_nothing_left()


@pytest.mark.slow
def test_a_port_that_ssh_forwards_takes_nobody_without_the_clusters_certificate(
    gputui: Command, shut: str
) -> None:
    run = Run(gputui, shut, "wait")
    run.hanging_worker()
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    port = int(workers_of(gputui)[0].rpartition(":")[2])
    with (
        pytest.raises((ssl.SSLError, ConnectionError)),
        socket.create_connection(("127.0.0.1", port), 10) as plain,
        context.wrap_socket(plain) as stranger,
    ):
        stranger.recv(1)
    (gputui.folder / "go").touch()
    assert run.end()[0] == 0
    run.assert_nothing_left()


@pytest.mark.slow
def test_a_worker_behind_ssh_that_is_killed_comes_back_at_a_port_of_its_host(
    gputui: Command, shut: str
) -> None:
    gputui.ok("up", shut)
    wait_until(lambda: len(workers_of(gputui)) == 2, why=lambda: log(gputui))
    worker, *_ = parts_of(cluster_of(gputui.pids()))["worker"]
    os.kill(worker, signal.SIGKILL)
    wait_until(lambda: len(workers_of(gputui)) == 3, why=lambda: log(gputui))
    assert gputui("down", "hosts").returncode == 0


@pytest.mark.slow
def test_an_ssh_connection_that_is_cut_is_made_again_and_its_tasks_run_again(
    gputui: Command, shut: str
) -> None:
    gputui.env["DASK_GPUTUI__LEASE"] = "20"
    run = Run(gputui, shut, "wait")
    run.hanging_worker()
    os.kill(parent_of(found(lambda: run.pid_of("relay"))), signal.SIGKILL)
    status, out, err = run.end()
    assert status == 0, f"{err}\n{log(gputui)}"
    assert json.loads(out)["result"] == {"value": hang.VALUE}
    assert log(gputui).count("host1: ready") == 2
    run.assert_nothing_left()


@pytest.mark.slow
def test_hosts_behind_ssh_find_each_other_again_after_a_cut_of_the_network(
    gputui: Command, namespace_hosts: Namespaces
) -> None:
    first, second, _ = namespace_hosts.hosts
    file = lines(gputui, namespace_hosts, "tunnel=true", "tunnel=true")
    gputui.env["DASK_GPUTUI__LEASE"] = "20"
    with namespace_hosts.firewall(first, out=False), namespace_hosts.firewall(second, out=False):
        assert gputui("up", file).returncode == 0
        wait_until(lambda: len(workers_of(gputui)) == 4, why=lambda: log(gputui))
        namespace_hosts.cut(first)
        try:
            wait_until(lambda: "host1: reconnecting" in log(gputui))
        finally:
            namespace_hosts.mend(first)
        wait_until(lambda: log(gputui).count("host1: ready") == 2, why=lambda: log(gputui))
        wait_until(lambda: len(workers_of(gputui)) == 6, why=lambda: log(gputui))
        done = gputui.ok("--attach", "hosts", *SVD)
        assert len(json.loads(done.stdout)["workers"]) == 4, log(gputui)
        assert gputui("down", "hosts").returncode == 0
    gputui.assert_nothing_left()


@pytest.mark.slow
def test_a_host_behind_ssh_that_is_off_the_network_ends_all_with_its_lease(
    gputui: Command, namespace_hosts: Namespaces, shut: str
) -> None:
    run = Run(gputui, shut, "child")
    run.hanging_worker()
    host = namespace_hosts.hosts[0]
    namespace_hosts.cut(host)
    try:
        wait_until(lambda: not run.on_hosts() & {*namespace_hosts.processes_of(host)}, GONE_S)
    finally:
        namespace_hosts.mend(host)
    status, _, err = run.end()
    assert (status, "no worker is left\n  host1: no " in err) == (1, True), err
    run.assert_nothing_left()
