"""Whose GPU it is: `who` and `claim`, as several people on one box run them."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.processes import command_of
from tests.sshd import SshHosts, free_port
from tests.system.conftest import Command, wait_until
from tests.system.parts import part_of

END_S = 30.0
"""Less than an agent that nobody ended would take: its lease."""
UUID = "GPU-{0:08x}-0000-0000-0000-000000000000"


pytestmark = pytest.mark.usefixtures("four_gpus")


def holding(gputui: Command, *arguments: str) -> "subprocess.Popen[str]":
    process = gputui.start("claim", *arguments)
    assert process.stdout and process.stdout.readline(), process.communicate()
    return process


def gpus(gputui: Command) -> list[dict[str, Any]]:
    done = gputui.ok("who", "--json")
    return [gpu for host in json.loads(done.stdout) for gpu in host["gpus"]]


def test_who_ends_its_agents_in_order(gputui: Command) -> None:
    gputui.env["DASK_GPUTUI__LEASE"] = str(2 * END_S)
    began = time.monotonic()
    assert gputui("who").returncode == 0
    assert not [each for each in gputui.left() if "gputui.agent" in each]
    assert time.monotonic() - began < END_S


def test_who_shows_a_claim_with_its_note_and_promised_end(gputui: Command) -> None:
    holding(gputui, "-n", "2", "--for", "1h", "--note", "training")
    seen = gpus(gputui)
    assert [each["free"] for each in seen] == [False, False, True, True]
    claim = seen[0]["claim"]
    assert claim["text"] == "training" and 3500 < claim["until"] - time.time() <= 3600
    table = gputui("who").stdout
    assert table.splitlines()[0].split() == [
        *("host", "gpu", "model", "util", "memory", "user", "since", "idle", "claim")
    ]
    assert "training · for 59m more" in table and "free" in table


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_claim_ends_with_a_signal_and_leaves_nothing(
    gputui: Command, open_folder: Path, number: signal.Signals
) -> None:
    gputui.env["GPUTUI_CLAIMS"] = str(open_folder)
    process = holding(gputui, "--note", "a letter")
    assert list(open_folder.glob("*.note"))
    process.send_signal(number)
    assert process.wait(20) == 130
    assert all(gpu["free"] for gpu in gpus(gputui))
    assert not list(open_folder.glob("*.note"))


@pytest.mark.slow
def test_a_claim_of_a_killed_command_ends_with_the_lease(gputui: Command) -> None:
    process = holding(gputui)
    process.kill()
    wait_until(lambda: all(gpu["free"] for gpu in gpus(gputui)), 30)


def test_gpus_that_others_have_are_not_claimed(gputui: Command) -> None:
    holding(gputui, "-n", "3")
    done = gputui("claim", "-n", "2")
    assert done.returncode == 3
    assert "too few free GPUs: 2 asked for, 1 free" in done.stderr
    assert gputui("claim", "-n", "9").stderr == (
        "gputui: too few GPUs: 9 asked for, 4 on these hosts\n"
    )
    refused = gputui("claim", "localhost gpus=free:1").stderr
    assert refused == "gputui: gpus=free:N: give -n, the number in all\n"


def test_who_waits_gets_what_is_freed_within_two_seconds(gputui: Command) -> None:
    first = holding(gputui, "-n", "3")
    second = gputui.start("claim", "-n", "4", "--wait", "60s", "--for", "1s")
    wait_until(lambda: all(gpu["waiting"] for gpu in gpus(gputui)))
    assert second.poll() is None
    first.send_signal(signal.SIGINT)
    first.wait(20)
    freed = time.monotonic()
    assert second.stdout and UUID.format(0) in second.stdout.readline()
    assert time.monotonic() - freed < 2
    assert second.wait(20) == 0


@pytest.mark.slow
def test_who_waits_gets_what_is_freed_though_its_agent_was_killed(gputui: Command) -> None:
    first = holding(gputui, "-n", "4")
    agents = agents_of(gputui)
    second = gputui.start("claim", "-n", "4", "--wait", "60s", "--for", "5s")
    wait_until(lambda: all(gpu["waiting"] for gpu in gpus(gputui)))
    (pid,) = agents_of(gputui) - agents
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: len(agents_of(gputui) - {pid}) == 2)
    wait_until(lambda: all(gpu["waiting"] for gpu in gpus(gputui)))
    freed = time.time()
    first.send_signal(signal.SIGINT)
    assert second.stdout and second.stdout.readline()
    assert {gpu["claim"]["until"] > freed + 5 for gpu in gpus(gputui)} == {True}
    assert second.wait(30) == 0


def agents_of(gputui: Command) -> set[int]:
    return {pid for pid in gputui.pids() if part_of(pid) == "agent"}


@pytest.mark.slow
def test_one_who_does_not_wait_comes_after_those_who_do(gputui: Command) -> None:
    holding(gputui, "-n", "3")
    gputui.start("claim", "-n", "2", "--wait", "60s")
    wait_until(lambda: all(gpu["waiting"] for gpu in gpus(gputui)))
    done = gputui("claim", "-n", "1")
    assert (done.returncode, done.stdout) == (3, "")
    assert "waited first" in done.stderr
    assert "add --wait 2h to stand in line" in done.stderr


def test_a_process_that_holds_memory_claims_its_gpu(gputui: Command) -> None:
    sleeper = subprocess.Popen(["sleep", "120"])
    try:
        used = {"processes": [{"pid": sleeper.pid, "memory_mib": 60_000}]}
        gputui.env["GPUTUI_FAKE_NVML"] = json.dumps({"gpus": [used, {}]})
        seen = gpus(gputui)
        assert [each["free"] for each in seen] == [False, True]
        assert seen[0]["processes"][0]["command"] == "sleep 120"
        assert abs(seen[0]["processes"][0]["since"] - time.time()) < 60
        by_user = gputui("who", "--by", "user").stdout.splitlines()
        assert by_user[1].split()[:2] == [seen[0]["processes"][0]["user"], "1"]
    finally:
        sleeper.kill()
        sleeper.wait()


def test_a_host_without_a_gpu_is_named(gputui: Command) -> None:
    gputui.env["GPUTUI_FAKE_NVML"] = json.dumps({"gpus": 0})
    done = gputui("who")
    assert done.returncode == 0
    assert done.stderr.startswith("gputui: localhost: no GPU")
    for command, said in (("who", "no host has a GPU that its gpus="), ("claim", "too few GPUs")):
        done = gputui(command, "localhost gpus=7")
        assert done.returncode == 3
        assert "localhost: no GPU 7: it has none" in done.stderr
        assert said in done.stderr


def test_ones_own_claims_are_listed_and_released(gputui: Command) -> None:
    holder = holding(gputui, "-n", "2", "--note", "training")
    listed = gputui("claim", "--list").stdout.splitlines()
    assert [line.split()[:2] for line in listed] == [["localhost", "0"], ["localhost", "1"]]
    assert all("training" in line for line in listed)
    assert gputui("claim", "--release").returncode == 0
    _, said = holder.communicate(timeout=20)
    assert holder.returncode == 3
    assert said.endswith("gputui: localhost: its agent ended; its GPUs are not held\n"), said
    assert all(gpu["free"] for gpu in gpus(gputui))
    assert gputui("claim", "--list").stdout == ""


def test_claims_are_released_though_the_next_in_line_has_them_at_once(gputui: Command) -> None:
    holder = holding(gputui, "-n", "4")
    waiter = gputui.start("claim", "-n", "4", "--wait", "60s")
    wait_until(lambda: all(gpu["waiting"] for gpu in gpus(gputui)))
    assert gputui.ok("claim", "--release").stderr == ""
    assert holder.wait(20) == 3 and waiter.poll() is None


def test_a_claim_for_a_process_lasts_as_long_as_that(gputui: Command) -> None:
    sleeper = subprocess.Popen(["sleep", "120"])
    try:
        used = {"processes": [{"pid": sleeper.pid, "memory_mib": 60_000}]}
        gputui.env["GPUTUI_FAKE_NVML"] = json.dumps({"gpus": [{}, used]})
        claiming = holding(gputui, "--pid", str(sleeper.pid))
        claims = [gpu["claim"] for gpu in gpus(gputui)]
        assert claims[0] is None and claims[1]["text"] == f"process {sleeper.pid}"
        assert "uses no GPU there" in gputui("claim", "--pid", str(claiming.pid)).stderr
        assert "its GPUs are claimed already" in gputui("claim", "--pid", str(sleeper.pid)).stderr
    finally:
        sleeper.kill()
        sleeper.wait()
    assert claiming.wait(20) == 0
    assert gpus(gputui)[1]["claim"] is None


def test_a_claim_for_a_process_ends_though_that_ends_while_the_host_is_away(
    gputui: Command,
) -> None:
    sleeper = subprocess.Popen(["sleep", "120"])
    try:
        used = {"processes": [{"pid": sleeper.pid, "memory_mib": 60_000}]}
        gputui.env["GPUTUI_FAKE_NVML"] = json.dumps({"gpus": [used]})
        claiming = holding(gputui, "--pid", str(sleeper.pid))
        (relay,) = [pid for pid in gputui.pids() if part_of(pid) == "relay"]
        os.kill(relay, signal.SIGKILL)
    finally:
        sleeper.kill()
        sleeper.wait()
    assert claiming.wait(20) == 0


def test_who_sums_by_host_and_leaves_out_what_no_filter_means(gputui: Command) -> None:
    holding(gputui, "-n", "3")
    table = gputui("who", "--by", "host").stdout.splitlines()
    assert table[0].split() == ["host", "gpus", "free", "memory", "power", "idle"]
    assert table[1].split()[:3] == ["localhost", "4", "1"]
    rows = gputui("who", "--only", "free").stdout.splitlines()[1:]
    assert [row.split()[1] for row in rows] == ["3"]
    user = gpus(gputui)[0]["claim"]["user"]
    assert len(gputui("who", "--only", f"user:{user}").stdout.splitlines()) == 4
    assert len(gputui("who", "--only", "idle>1h").stdout.splitlines()) == 1
    for word in ("mine", "user:"):
        refused = gputui("who", "--only", word)
        assert refused.returncode == 2
        assert f"--only {word}: write free, user:NAME or 'idle>1h'" in refused.stderr


def test_a_host_whose_disks_are_full_is_seen(gputui: Command) -> None:
    gputui.ok("who")  # keeps the pack
    gputui.before = ("sh", "-c", 'ulimit -f 0; exec "$@"', "sh")
    assert len(gputui.ok("who").stdout.splitlines()) == 5


def test_an_agent_that_could_not_be_started_is_told_with_why(gputui: Command) -> None:
    done = gputui("claim", "localhost env.TMPDIR=/proc/none")
    assert done.returncode == 3 and "could not be started: /proc/none: " in done.stderr


@pytest.mark.slow
def test_a_host_whose_driver_hangs_is_not_told_as_one_without_gpus(gputui: Command) -> None:
    gputui.env["GPUTUI_FAKE_NVML"] = json.dumps({"gpus": 4, "hang": ["nvmlInit"]})
    done = gputui("who", "--json")
    why = "NVML does not answer: does nvidia-smi work on this host?"
    assert (done.returncode, json.loads(done.stdout)) == (3, [{"host": "localhost", "error": why}])
    assert done.stderr == f"gputui: localhost: {why}\n"


def test_who_lists_gpus_that_the_environment_leaves_to_others(gputui: Command) -> None:
    gputui.env["CUDA_VISIBLE_DEVICES"] = "2"
    assert len(gpus(gputui)) == 4
    gputui.ok("up", "--name", "lab")
    del gputui.env["CUDA_VISIBLE_DEVICES"]
    wait_until(lambda: [gpu["free"] for gpu in gpus(gputui)] == [True, True, False, True])
    assert gputui.ok("who", "localhost gpus=1").stdout.count("localhost") == 1


def test_doctor_refuses_more_free_gpus_than_there_are(gputui: Command) -> None:
    done = gputui("doctor", "localhost gpus=free:9")
    assert done.returncode == 3 and "gpus=free:9, but it has 4" in done.stdout
    assert "gpus      2 to use: " in gputui.ok("doctor", "localhost gpus=free:2").stdout


def test_a_look_does_not_know_for_how_long_a_gpu_has_been_idle(gputui: Command) -> None:
    assert {gpu["idle_since"] for gpu in gpus(gputui)} == {None}


@pytest.mark.skipif(os.getuid() != 0, reason="namespaces of pids need root")
def test_a_holder_in_another_namespace_of_pids_is_unknown_and_excludes(gputui: Command) -> None:
    holding(gputui, "-n", "3")
    gputui.before = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--")
    assert gputui("who").stdout.count("held, holder unknown") == 3
    assert "2 asked for, 1 free" in gputui("claim", "-n", "2").stderr
    gputui.before = ()


def test_what_is_over_says_so_with_how_long_it_has_been_idle(gputui: Command) -> None:
    assert gputui("up", "--name", "lab", "--gpus", "1", "--for", "1s").returncode == 0
    wait_until(lambda: "cluster lab · over by " in gputui("who").stdout, 20)
    assert gputui("down", "lab").returncode == 0


def test_a_folder_of_claims_that_will_not_do_is_named(gputui: Command, tmp_path: Path) -> None:
    none, closed, link = (tmp_path / name for name in ("none", "closed", "link"))
    closed.mkdir(0o755)
    link.symlink_to(closed)
    for folder, why in (
        (none, "No such file or directory"),
        (closed, "has mode 755, not 1777"),
        (link, "is not a folder"),
    ):
        gputui.env["GPUTUI_CLAIMS"] = str(folder)
        for done in (gputui("who"), gputui("claim")):
            assert "claims: " in done.stderr and why in done.stderr, done
            assert str(folder) in done.stderr, done
        assert done.returncode == 3


def test_who_asks_a_running_head_of_its_hosts_and_reaches_only_the_others(
    gputui: Command, openssh_hosts: SshHosts, tmp_path: Path
) -> None:
    gputui.env |= openssh_hosts.environment
    other = openssh_hosts.hosts[0].name
    hosts = tmp_path / "all.txt"
    hosts.write_text(f"localhost\n{other}\n")
    assert gputui("up", "localhost", "--name", "lab", "--gpus", "1").returncode == 0
    try:
        # An agent of its own would find two GPUs now.
        gputui.env["GPUTUI_FAKE_NVML"] = json.dumps({"gpus": 2})

        def claimed() -> bool:
            host, reached = json.loads(gputui("who", str(hosts), "--json").stdout)
            assert len(host["gpus"]) == 4 and reached["host"] == other and "gpus" in reached
            return [bool(gpu["claim"]) for gpu in host["gpus"]] == [True, False, False, False]

        wait_until(claimed, 20)  # the snapshot is of a moment before
    finally:
        gputui("down", "lab")
    assert len(gpus(gputui)) == 2


def test_who_reaches_a_host_whose_head_ends_meanwhile(gputui: Command, tmp_path: Path) -> None:
    hosts = tmp_path / "lab.txt"
    with socket.create_server(("127.0.0.1", 0)) as silent:
        hosts.write_text(f"localhost\n127.0.0.1:{silent.getsockname()[1]}\n")
        assert gputui("up", "localhost", "--name", "lab").returncode == 0
        asking = gputui.start("who", str(hosts), "--json")
        login, _ = silent.accept()
        assert gputui("down", "lab").returncode == 0
        login.close()
    rows, _ = asking.communicate(timeout=60)
    host, failed = json.loads(rows)
    assert len(host["gpus"]) == 4 and "error" in failed


def test_who_names_the_hosts_that_a_running_head_does_not_reach(
    gputui: Command, tmp_path: Path
) -> None:
    hosts = tmp_path / "lab.txt"
    hosts.write_text("localhost\n127.0.0.1:9\n")  # nothing listens on that port
    assert gputui("up", str(hosts)).returncode == 0
    done = gputui("who", str(hosts))
    assert done.returncode == 0 and "127.0.0.1" not in done.stdout
    assert done.stderr == (
        "gputui: 127.0.0.1: 127.0.0.1:9 refuses the connection\n"
        "  start sshd there, or write the port it listens on: host:port\n"
    )


def test_who_that_watches_names_a_host_that_is_lost_and_its_warnings_once(gputui: Command) -> None:
    gputui.env["GPUTUI_FAKE_NVML"] = json.dumps({"gpus": [{"mig": []}, {}]})
    watching = gputui.start("who", "--watch", env={"DASK_GPUTUI__LEASE": "2"})
    assert watching.stdout and "is in MIG mode" in watching.stderr.readline()
    agents = [p for p in gputui.pids() if any("agent" in word for word in command_of(p))]
    for pid in agents:
        os.kill(pid, signal.SIGSTOP)
    assert watching.stderr.readline().startswith("gputui: localhost: ")
    for pid in agents:
        with contextlib.suppress(ProcessLookupError):  # the relay was ended
            os.kill(pid, signal.SIGCONT)
    before, was_away = "", False
    for line in watching.stdout:  # it is reached again
        was_away = was_away or before[:5] == line[:5] == "host "
        if was_away and line.startswith("localhost"):
            break
        before = line
    watching.send_signal(signal.SIGINT)
    assert "MIG" not in watching.communicate(timeout=20)[1]


def test_who_that_watches_reaches_hosts_whose_head_has_ended(gputui: Command) -> None:
    gputui.ok("up", "--name", "lab")
    wait_until(lambda: gpus(gputui)[0]["claim"])
    watching = gputui.start("who", "--watch")
    assert watching.stdout and watching.stdout.readline().startswith("host ")
    assert "cluster lab" in watching.stdout.readline()
    gputui.ok("down", "lab")
    for line in watching.stdout:
        if line.startswith("localhost") and "cluster lab" not in line:
            break


def test_who_that_watches_tries_a_host_again_that_was_down(gputui: Command) -> None:
    port = free_port()
    watching = gputui.start("who", f"localhost,127.0.0.1:{port}", "--watch")
    assert watching.stderr and "refuses the connection" in watching.stderr.readline()
    with socket.create_server(("127.0.0.1", port)) as server:
        server.settimeout(20)
        server.accept()[0].close()
