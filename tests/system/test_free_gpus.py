"""Clusters that take free GPUs only, claimed before their workers start."""

import fcntl
import json
import os
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from tests import fakes
from tests.sshd import Namespaces
from tests.system.conftest import Command, wait_until
from tests.system.test_sharing import UUID, gpus, holding

pytestmark = pytest.mark.usefixtures("four_gpus")

SCRIPT = """
from dask.distributed import Client
with Client() as client:
    print(sorted(name for name in client.has_what() and
                 [w["id"] for w in client.scheduler_info(n_workers=-1)["workers"].values()]))
"""


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "names.py"
    path.write_text(SCRIPT)
    return str(path)


def test_a_run_takes_free_gpus_only(gputui: Command, script: str) -> None:
    holding(gputui, "-n", "2")
    done = gputui.ok("--run", script, "--gpus", "2")
    assert done.stdout == "['localhost:gpu2', 'localhost:gpu3']\n"


def test_a_run_without_wait_says_who_has_the_gpus(gputui: Command, script: str) -> None:
    holding(gputui, "-n", "3", "--for", "1h", "--note", "training")
    done = gputui("--run", script, "--gpus", "2")
    assert (done.returncode, done.stdout) == (3, "")
    assert "too few free GPUs: 2 asked for, 1 free" in done.stderr
    assert " · training · for 59m more" in done.stderr
    assert "add --wait 2h to stand in line" in done.stderr


@pytest.mark.slow
def test_a_run_waits_for_gpus_and_takes_what_is_freed(gputui: Command, script: str) -> None:
    first = holding(gputui, "-n", "3")
    second = gputui.start("--run", script, "--gpus", "4", "--wait", "2m")
    wait_until(lambda: all(gpu["waiting"] for gpu in gpus(gputui)), 30)
    assert second.poll() is None
    first.send_signal(signal.SIGINT)
    said, _ = second.communicate(timeout=60)
    assert second.returncode == 0 and said.count("localhost:gpu") == 4


@pytest.mark.slow
def test_who_waits_in_vain_is_told_once_and_not_to_wait(gputui: Command, script: str) -> None:
    holding(gputui, "-n", "3", "--for", "119m")
    done = gputui("--run", script, "--gpus", "4", "--wait", "18s")
    assert done.returncode == 3 and done.stderr.count("waiting for GPUs: ") == 1, done.stderr
    assert " · for 1h58m more" in done.stderr and "add --wait" not in done.stderr


def test_a_line_of_the_hosts_file_gives_so_many_free_gpus(gputui: Command, script: str) -> None:
    holding(gputui, "-n", "1")
    done = gputui("localhost gpus=free:2", "--run", script)
    assert done.stdout == "['localhost:gpu1', 'localhost:gpu2']\n", done.stderr


def test_of_hosts_that_all_failed_no_gpu_is_missed(gputui: Command, script: str) -> None:
    done = gputui("localhost gpus=free:1 python=/none", "--run", script)
    assert done.returncode == 3 and "/none" in done.stderr
    assert "too few" not in done.stderr and "--wait" not in done.stderr


@pytest.mark.slow
@pytest.mark.skipif(os.getuid() != 0, reason="another user is played by root alone")
@pytest.mark.parametrize(("busy", "workers"), [("warn", 4), ("skip", 3), ("refuse", 0)])
def test_what_another_user_claims_is_busy(
    gputui: Command,
    script: str,
    open_folder: Path,
    busy: str,
    workers: int,
) -> None:
    gputui.env["GPUTUI_CLAIMS"] = str(open_folder)
    lock = open_folder / f"{UUID.format(0)}.lock"
    lock.touch()
    words = ("flock", str(lock), "sh", "-c", "echo held; exec sleep 60")
    user = {"user": 61001, "group": 61001, "extra_groups": []}
    other = subprocess.Popen(words, stdout=subprocess.PIPE, start_new_session=True, **user)  # type: ignore[call-overload]
    try:
        assert other.stdout.readline() == b"held\n"
        done = gputui("--run", script, "--busy", busy)
    finally:
        os.killpg(other.pid, signal.SIGKILL)
        other.communicate()
    assert "GPU 0 is claimed by 61001" in done.stderr
    assert done.stdout.count("localhost:gpu") == workers, done.stderr
    assert done.returncode == (0 if workers else 3)


def test_a_claim_ends_once_somebody_else_has_its_gpu(gputui: Command, open_folder: Path) -> None:
    gputui.env["GPUTUI_CLAIMS"] = str(open_folder)
    claim = holding(gputui, "-n", "1")
    with (open_folder / "another").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        Path(file.name).rename(open_folder / f"{UUID.format(0)}.lock")
        _, said = claim.communicate(timeout=30)
    assert claim.returncode == 3
    assert f"localhost: {UUID.format(0)} is claimed by root; its GPUs are not held" in said


@pytest.mark.slow
def test_gpus_of_a_cluster_whose_agent_was_killed_are_the_next_in_lines(gputui: Command) -> None:
    def workers() -> int:
        (lab,) = json.loads(gputui.ok("ls", "--json").stdout)
        return int(lab["workers"])

    gputui.ok("up", "--name", "lab", "--gpus", "2")
    wait_until(lambda: gpus(gputui)[0]["claim"])
    agent = gpus(gputui)[0]["claim"]["pid"]
    holding(gputui, "-n", "2")
    waiter = gputui.start("claim", "-n", "2", "--wait", "2m")
    wait_until(lambda: all(gpu["waiting"] for gpu in gpus(gputui)))
    assert workers() == 2
    os.kill(agent, signal.SIGKILL)
    assert waiter.stdout
    assert [waiter.stdout.readline().split()[1] for _ in range(2)] == ["0", "1"]
    wait_until(lambda: workers() == 0)
    time.sleep(3.0)
    assert workers() == 0
    waiter.send_signal(signal.SIGTERM)
    wait_until(lambda: workers() == 2)
    gputui.ok("down", "lab")


LEASE_S = 4
FAKE = 'setup="export PYTHONPATH={fakes} GPUTUI_FAKE_NVML={gpus} GPUTUI_CLAIMS={claims}"'


def lines_of(hosts: Namespaces, folder: Path, options: str = "") -> str:
    """Return a hosts file of hosts with two made-up GPUs and a folder of claims each."""
    lines = []
    for host in hosts.hosts:
        claims = folder / host.name
        claims.mkdir()
        claims.chmod(0o1777)
        gpus = folder / f"{host.name}.json"
        uuids = [{"uuid": f"GPU-{host.name}-{number}"} for number in range(2)]
        gpus.write_text(json.dumps({"gpus": uuids}))
        setup = FAKE.format(fakes=Path(fakes.__file__).parent, gpus=gpus, claims=claims)
        lines.append(f"{host.name} {setup} memory=1GiB {options}\n")
    return "".join(lines)


def claimed(gputui: Command, text: str) -> set[str]:
    """Return what the hosts that answer say is claimed, by agents of their own."""
    with tempfile.TemporaryDirectory(prefix="gt-") as elsewhere:  # where no head is
        words, env = gputui.words("who", text, "--json"), {"XDG_RUNTIME_DIR": elsewhere}
        hosts = json.loads(gputui.run_other(*words, env=env).stdout)
    return {gpu["uuid"] for host in hosts for gpu in host.get("gpus", ()) if gpu["claim"]}


@pytest.mark.slow
@pytest.mark.parametrize("options", ["", "gpus=free:1"])
def test_gpus_of_a_host_that_is_lost_are_replaced_or_claimed_again(
    gputui: Command,
    namespace_hosts: Namespaces,
    options: str,
) -> None:
    gputui.env |= namespace_hosts.environment | {"DASK_GPUTUI__LEASE": str(LEASE_S)}
    text = lines_of(namespace_hosts, gputui.folder, options)
    hosts = gputui.folder / "lab.txt"
    hosts.write_text(text)
    wanted = () if options else ("--gpus", "2")
    gputui.ok("up", str(hosts), *wanted)
    before = claimed(gputui, text)
    assert len(before) == (3 if options else 2)
    lost = next(each for each in namespace_hosts.hosts if f"GPU-{each.name}-0" in before)
    namespace_hosts.cut(lost)
    try:
        wait_until(lambda: len(claimed(gputui, text)) == 2, 60)
        after = claimed(gputui, text)
        assert not any(lost.name in uuid for uuid in after)
    finally:
        namespace_hosts.mend(lost)
    wait_until(lambda: claimed(gputui, text) == (before if options else after), 60)
    assert gputui("down", "lab").returncode == 0
    assert claimed(gputui, text) == set()


@pytest.mark.slow
def test_the_pipe_of_an_mps_daemon_reaches_workers_and_programs(
    gputui: Command, tmp_path: Path
) -> None:
    script = tmp_path / "pipes.py"
    script.write_text(
        "import os\nfrom dask.distributed import Client\n"
        "def pipe(): return os.environ.get('CUDA_MPS_PIPE_DIRECTORY')\n"
        "with Client() as client: print(*client.run(pipe).values())\n"
    )
    hosts = "localhost gpus=0 workers-per-gpu=2 memory=1GiB env.CUDA_MPS_PIPE_DIRECTORY=/my/mps"
    assert gputui(hosts, "--run", str(script)).stdout == "/my/mps /my/mps\n"
    done = gputui(hosts, "--exec", "--quiet", "--", "sh", "-c", "echo $CUDA_MPS_PIPE_DIRECTORY")
    assert done.stdout == "/my/mps\n"


def test_a_cluster_that_is_left_running_promises_its_end(gputui: Command) -> None:
    gputui.ok("up", "--name", "lab", "--gpus", "2", "--for", "3h")
    try:
        # The head that is asked shows a moment before.
        wait_until(lambda: any(gpu["claim"] for gpu in gpus(gputui)), 20)
        claims = [gpu["claim"] for gpu in gpus(gputui) if gpu["claim"]]
        assert [claim["text"] for claim in claims] == ["cluster lab"] * 2
        assert all(3500 * 3 < claim["until"] - time.time() <= 3600 * 3 for claim in claims)
    finally:
        assert gputui("down", "lab").returncode == 0
    assert all(gpu["free"] for gpu in gpus(gputui))
