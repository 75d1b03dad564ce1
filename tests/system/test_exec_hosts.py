"""`--exec` over three hosts with sshd, addresses and wires of their own: how it ends, whatever
ends it."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fleet.test_reachability import no_route
from tests.processes import command_of, lives
from tests.sshd import Namespaces
from tests.system.conftest import GONE_S, Command, wait_until

LEASE_S = 4
ON_HOSTS = ("--exec", "-n", "3", "--quiet")
RANK = "import os; rank = int(os.environ['PET_NODE_RANK'])\n"
MEET = RANK + (
    "import socket\n"
    "there = os.environ['PET_MASTER_ADDR'], int(os.environ['PET_MASTER_PORT'])\n"
    "if rank == 0:\n"
    "    server = socket.create_server(there)\n"
    "    ends = [server.accept()[0] for _ in range(2)]\n"
    "    print('met', sorted(end.recv(9).decode() for end in ends))\n"
    "else:\n"
    "    import time\n"
    "    while True:\n"
    "        try: end = socket.create_connection(there, 5); break\n"
    "        except ConnectionRefusedError: time.sleep(0.05)\n"
    "    end.send(str(rank).encode())\n"
    "    print('on', end.getsockname()[0])\n"
)


@pytest.fixture
def three(gputui: Command, namespace_hosts: Namespaces) -> Command:
    """The command, for three hosts without a GPU."""
    gputui.env |= namespace_hosts.environment | {"DASK_GPUTUI__LEASE": str(LEASE_S)}
    (gputui.folder / "three.txt").write_text(namespace_hosts.text("gpus=none"))
    return gputui


def run(three: Command, code: str, *words: str, **more: object) -> "subprocess.Popen[str]":
    words = (*ON_HOSTS, *words, "--", sys.executable, "-c", code)
    return three.start("three.txt", *words, **more)


def of_clusters(hosts: Namespaces) -> list[int]:
    """Return the pids of all that runs on the hosts, but for sshd."""
    there = [pid for host in hosts.hosts for pid in hosts.processes_of(host)]
    return [pid for pid in there if lives(pid) and b"sshd" not in command_line(pid)]


def command_line(pid: int) -> bytes:
    """Return a process's command line, nothing where it has ended."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b"sshd"


def nothing_left(hosts: Namespaces, bound_s: float = LEASE_S + 10) -> None:
    def left() -> str:
        return str([command_line(pid) for pid in of_clusters(hosts)])

    wait_until(lambda: not of_clusters(hosts), bound_s, left)


def prints(process: "subprocess.Popen[str]", *lines: str) -> None:
    """Wait until these lines were printed, in any order."""
    missing = set(lines)
    while missing:
        line = process.stdout.readline()
        assert line, f"never printed: {missing}; {process.stderr and process.stderr.read()}"
        missing.discard(line.rstrip("\n"))


def test_one_process_a_host_meets_where_its_peers_reach_it(
    three: Command, namespace_hosts: Namespaces
) -> None:
    process = run(three, MEET)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    _, second, third = namespace_hosts.hosts
    assert sorted(out.splitlines()) == [
        "0 | met ['1', '2']",
        f"1 | on {second.address}",
        f"2 | on {third.address}",
    ]
    nothing_left(namespace_hosts)


@pytest.mark.slow
@pytest.mark.parametrize("closed", [True, False])
def test_a_way_that_is_closed_is_named_with_both_addresses_before_anything_starts(
    three: Command, namespace_hosts: Namespaces, closed: bool
) -> None:
    first, _, third = namespace_hosts.hosts
    shut = namespace_hosts.firewall(first)
    with shut if closed else no_route(namespace_hosts, third, first):
        process = run(three, f"open({str(three.folder / 'began')!r}, 'w')")
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (3, "")
    assert f"({third.address}) cannot reach" in err or closed
    assert f"{first.name} at {first.address}: " in err
    assert not (three.folder / "began").exists()
    nothing_left(namespace_hosts)


@pytest.mark.slow
def test_a_cut_shorter_than_the_lease_loses_neither_output_nor_input(
    three: Command, namespace_hosts: Namespaces
) -> None:
    first, second, _ = namespace_hosts.hosts
    three.env["DASK_GPUTUI__LEASE"] = "20"
    code = RANK + (
        "import sys, time\n"
        "print('up', flush=True)\n"
        "for n in range(5): time.sleep(1); print(n, flush=True)\n"
        "print(sys.stdin.read().strip()[::-1])\n"
    )
    process = run(three, code, stdin=subprocess.PIPE)
    prints(process, "0 | up", "1 | up", "2 | up")
    for host in (first, second):
        namespace_hosts.cut(host)
    process.stdin.write("cba\n")
    process.stdin.close()
    prints(process, "2 | 3")  # a host that is not cut goes on
    for host in (first, second):
        namespace_hosts.mend(host)
    lines = process.stdout.read().splitlines()
    assert process.wait(60) == 0, process.stderr.read()
    for rank, last in enumerate(("abc", "", "")):
        said = [line for line in lines if line.startswith(f"{rank} | ")]
        begins = 4 if rank == 2 else 0
        assert said == [f"{rank} | {each}" for each in (*range(begins, 5), last)]
    nothing_left(namespace_hosts)


@pytest.mark.slow
def test_a_cut_longer_than_the_lease_ends_the_run_everywhere(
    three: Command, namespace_hosts: Namespaces
) -> None:
    cut = namespace_hosts.hosts[1]
    process = run(three, "import time; print('up', flush=True); time.sleep(1000)")
    prints(process, "0 | up", "1 | up", "2 | up")
    namespace_hosts.cut(cut)
    try:
        assert process.wait(LEASE_S + 10) == 137
        assert f"(rank 1, {cut.name}) {cut.name} was lost: " in process.stderr.read()
        nothing_left(namespace_hosts)
    finally:
        namespace_hosts.mend(cut)


@pytest.mark.slow
@pytest.mark.parametrize("killed", ["head", "frontend"])
def test_nothing_is_left_of_a_run_whose_head_or_frontend_is_killed(
    three: Command, namespace_hosts: Namespaces, killed: str
) -> None:
    code = (
        "import os, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "if not os.fork(): os.setsid(); time.sleep(1000)\n"
        "print('up', flush=True); time.sleep(1000)"
    )
    process = run(three, code)
    prints(process, "0 | up", "1 | up", "2 | up")
    heads = [p for p in three.pids() if "gputui.head" in command_of(p) and p != process.pid]
    assert heads
    os.kill(heads[0] if killed == "head" else process.pid, signal.SIGKILL)
    assert process.wait(GONE_S) == (3 if killed == "head" else -signal.SIGKILL)
    nothing_left(namespace_hosts)


def test_a_rank_that_never_comes_to_the_meeting_ends_with_those_that_gave_it_up(
    three: Command, namespace_hosts: Namespaces
) -> None:
    late = "import time; time.sleep(1000)\n"
    code = MEET.replace("else:\n", f"elif rank == 2:\n    {late}else:\n")
    code = code.replace("server.accept", "server.settimeout(2) or server.accept")
    process = run(three, code)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1 and "timed out" in err
    nothing_left(namespace_hosts)


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_gigabyte_comes_whole_and_fills_no_memory(
    three: Command, namespace_hosts: Namespaces
) -> None:
    code = "import sys\nfor _ in range(2**14): sys.stdout.write('x' * (2**16 - 1) + '\\n')"
    words = ("--exec", "--quiet", "--", sys.executable, "-c", code)
    process = three.start("three.txt", *words)
    most, got = 0, 0
    while data := process.stdout.buffer.read1(2**20):
        got += len(data)
        if got % 2**24 < len(data):
            most = max(most, *(resident_bytes(pid) for pid in three.pids()))
            most = max(most, *(resident_bytes(pid) for pid in of_clusters(namespace_hosts)))
    assert process.wait(20) == 0
    assert got == 2**30
    assert most < 200e6
    nothing_left(namespace_hosts)


def resident_bytes(pid: int) -> int:
    """Return how much memory a process has, 0 where it has ended."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096
    except OSError:
        return 0


@pytest.mark.parametrize("fails", [False, True])
def test_a_folder_that_is_sent_goes_with_the_program(
    three: Command, namespace_hosts: Namespaces, fails: bool
) -> None:
    folder = three.folder / "project"
    folder.mkdir()
    (folder / "data").write_bytes(os.urandom(100_000))
    (folder / "train.py").write_text(
        "import os; print(f'{os.getcwd()} {os.path.getsize(\"data\")}'); open('new', 'w').close()\n"
        f"{fails} and os.environ['PET_NODE_RANK'] == '1' and os._exit(9)"
    )
    words = ("--exec", "-n", "3", "--quiet", "--send", "project", "--", "python", "train.py")
    done = three("three.txt", *words)
    assert done.returncode == (9 if fails else 0), done.stderr
    said = [line.split() for line in done.stdout.splitlines()]
    assert {size for _, _, _, size in said} == {"100000"}
    nothing_left(namespace_hosts)
    assert said and not any(Path(cwd).exists() for _, _, cwd, _ in said)
    run, *_ = json.loads(three.ok("runs", "--json").stdout)
    assert run["parameters"]["send"] == str(folder), "a repeat elsewhere means the same folder"
