"""Jobs of an ordinary user in a real Slurm that confines each to its CPUs and GPUs."""

import fcntl
import json
import os
import pwd
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm import Slurm
from tests.system.conftest import Command, a_command, wait_until
from tests.system.test_mig import COMPILER, Machine
from tests.system.test_slurm import CPUS, GPUS, agents, scratch
from tests.system.test_three_people import reading

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.getuid() != 0, reason="users are played by root alone"),
]

DAEMON = """
import os, signal, sys, time
for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(each, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in range(3):
            os.dup2(null, descriptor)
        time.sleep(1000)
    os._exit(0)
os.wait()
"""


@pytest.fixture
def theirs(open_folder: Path) -> Iterator[Command]:
    """The command as a user runs it whom every Linux has."""
    user = pwd.getpwnam("daemon")
    (open_folder / "command").mkdir()
    with a_command(open_folder / "command") as command:
        ids = (f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups")
        command.before = ("setpriv", *ids, *reading(), "--")
        command.env["HOME"] = str(command.folder)
        for folder in (command.folder, command.runtime):
            subprocess.run(["chown", "-R", f"{user.pw_name}:", str(folder)], check=True)
        yield command


@pytest.fixture
def with_gpus(theirs: Command, open_folder: Path) -> Command:
    """The command where each node has four made-up GPUs, which can be claimed."""
    if COMPILER is None:
        pytest.skip("needs a C compiler")
    machine, claims = Machine(open_folder), open_folder / "claims"
    machine.set(GPUS)
    claims.mkdir()
    claims.chmod(0o1777)
    theirs.env |= machine.env | {"GPUTUI_CLAIMS": str(claims)}
    return theirs


def test_a_job_has_its_own_gpus_and_not_those_of_another_job(
    with_gpus: Command, confined_slurm: Slurm
) -> None:
    half = ("-N1", "-w", "host1", "--gpus=2")
    with (
        confined_slurm.allocation(*half),
        confined_slurm.allocation(*half, before=with_gpus.before) as env,
    ):
        env = env | {"MOCK_NVML_DEVICES": str(confined_slurm.folder / "dev")}
        said = ("sh", "-c", "echo $CUDA_VISIBLE_DEVICES")
        words = ("@slurm", "--exec", "-n", "2", "--per", "gpu", "--json", "--", *said)
        done = with_gpus.run_other(*with_gpus.words(*words), env=env)
        assert done.returncode == 0, done.stderr
        assert [each["uuid"] for each in json.loads(done.stdout)["workers"]] == ["GPU-2", "GPU-3"]
        assert "0 | 0" in done.stderr and "1 | 1" in done.stderr  # as CUDA counts there
        done = with_gpus.run_other(
            *with_gpus.words("@slurm", "--exec", "-n", "3", "--", "true"), env=env
        )
        assert "too few GPUs: 3 asked for, 2 on these hosts" in done.stderr


def test_scancel_leaves_no_daemon_of_a_task_or_a_program_and_no_claim(
    with_gpus: Command, confined_slurm: Slurm
) -> None:
    daemon = with_gpus.folder / "daemon.py"
    daemon.write_text(DAEMON)
    (with_gpus.folder / "task.py").write_text(
        "import subprocess, sys\nfrom dask.distributed import Client\n"
        f"Client().run(subprocess.run, [sys.executable, {str(daemon)!r}])\n"
    )

    def daemons() -> list[str]:
        return [each for each in with_gpus.left() if each.endswith(f" {daemon}")]

    def free(uuid: str) -> bool:
        with (Path(with_gpus.env["GPUTUI_CLAIMS"]) / f"{uuid}.lock").open() as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            return True

    with confined_slurm.allocation("--gpus-per-node=1", before=with_gpus.before) as env:
        env = env | {"MOCK_NVML_DEVICES": str(confined_slurm.folder / "dev")}
        up = with_gpus.words("up", CPUS, "--name", "job")
        assert "job: 2 workers" in with_gpus.run_other(*up, env=env).stdout
        done = with_gpus("--attach", "job", "--run", "task.py")
        assert done.returncode == 0, done.stderr
        both = f"{sys.executable} {daemon}; sleep 1000"
        one = ("@slurm gpus=GPU-0", "--exec", "-n", "1", "--", "sh", "-c", both)
        program = with_gpus.start(*one, env=env)
        wait_until(lambda: len(daemons()) == 3, why=lambda: str(with_gpus.left()))
        assert not free("GPU-0")
        confined_slurm("scancel", env["SLURM_JOB_ID"])
        assert program.wait(60) != 0
        wait_until(lambda: not agents(with_gpus), why=lambda: str(agents(with_gpus)))
        assert daemons() == [] and free("GPU-0") and scratch(with_gpus) == []
        wait_until(lambda: confined_slurm.jobs() == [])
    with_gpus("down", "job")
