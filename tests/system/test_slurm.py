"""In a job of a real Slurm, `@slurm` is its nodes, and srun starts their agents."""

import json
import os
import signal
import sys
from pathlib import Path

import pytest

from tests.processes import command_of, parent_of
from tests.slurm import Slurm
from tests.system.conftest import Command, wait_until
from tests.system.test_mig import COMPILER, Machine

pytestmark = pytest.mark.slow

CPUS = "@slurm gpus=none workers=1 nthreads=1 memory=500MiB"
GPUS = "".join(f"gpu GPU-{number} NVIDIA_H100 81559 0 0\n" for number in range(4))


def steps(slurm: Slurm) -> list[str]:
    """Return the steps that run, those of the allocations themselves apart."""
    return slurm("squeue", "-h", "-s", "-o", "%i").split()


def agents(gputui: Command) -> list[str]:
    """Return all that runs on nodes, and srun, which forks a process that ends its step with it."""
    return [each for each in gputui.left() if " srun " in each or "relay" in each]


def is_srun(pid: int) -> bool:
    return command_of(pid)[:1] == ["srun"]


def scratch(gputui: Command) -> list[Path]:
    """Return the scratch folders of agents."""
    return list(gputui.runtime.glob("gputui-*"))


@pytest.mark.parametrize("asked", ["--gpus=4", "--gpus-per-node=2", "-n4 --gpus-per-task=1"])
@pytest.mark.skipif(COMPILER is None, reason="needs a C compiler")
def test_a_host_has_the_gpus_that_its_job_has_of_it(
    gputui: Command, slurm: Slurm, tmp_path: Path, asked: str
) -> None:
    machine = Machine(tmp_path)
    machine.set(GPUS)
    with slurm.allocation(*asked.split()) as env:
        detail = slurm("scontrol", "show", "job", "-d", env["SLURM_JOB_ID"])
        words = gputui.words("who", "@slurm", "--json")
        done = gputui.run_other(*words, env=env | machine.env)
        assert done.returncode == 0, done.stderr
        seen = {
            each["host"]: [gpu["gpu"] for gpu in each["gpus"]] for each in json.loads(done.stdout)
        }
        assert sum(map(len, seen.values())) == 4
        for host, gpus in seen.items():
            assert f"GRES=gpu:{len(gpus)}" in detail, (host, gpus, detail)
    wait_until(lambda: not steps(slurm))


@pytest.mark.skipif(COMPILER is None, reason="needs a C compiler")
def test_a_job_has_its_own_gpus_and_not_those_of_another_job(
    gputui: Command, slurm: Slurm, tmp_path: Path
) -> None:
    machine = Machine(tmp_path)
    machine.set(GPUS)
    half = ("-N1", "-w", "host1", "--gpus=2")
    with slurm.allocation(*half), slurm.allocation(*half) as env:
        said = ("sh", "-c", "echo $CUDA_VISIBLE_DEVICES")
        words = ("@slurm", "--exec", "-n", "2", "--per", "gpu", "--json", "--", *said)
        done = gputui.run_other(*gputui.words(*words), env=env | machine.env)
        assert done.returncode == 0, done.stderr
        assert [each["uuid"] for each in json.loads(done.stdout)["workers"]] == ["GPU-2", "GPU-3"]
        assert "0 | 2" in done.stderr and "1 | 3" in done.stderr


@pytest.mark.skipif(COMPILER is None, reason="needs a C compiler")
def test_a_job_without_gpus_uses_none_of_its_nodes(
    gputui: Command, slurm: Slurm, tmp_path: Path
) -> None:
    machine, script, out = Machine(tmp_path), tmp_path / "job.sh", tmp_path / "out"
    machine.set(GPUS)
    with slurm.allocation() as env:
        gpus = gputui.words("@slurm", "--run", "smoke")
        done = gputui.run_other(*gpus, env=env | machine.env)
        assert done.returncode == 3 and "its Slurm job has no GPU of it" in done.stderr
        line = "@slurm env.CUDA_VISIBLE_DEVICES=2"
        given = gputui.words(
            line, "--exec", "-n", "1", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES"
        )
        assert gputui.run_other(*given, env=env | machine.env).stdout == "2\n"
    script.write_text(f"#!/bin/sh\n{sys.executable} -m gputui doctor localhost\n")
    batch = ("sbatch", "-W", "-N1", f"--chdir={tmp_path}", f"--output={out}", str(script))
    gputui.run_other(*batch, env=slurm.env | machine.env)
    assert "its Slurm job has no GPU of it" in out.read_text()


def test_a_run_in_a_job_uses_the_cpus_of_its_job_only(gputui: Command, slurm: Slurm) -> None:
    (gputui.folder / "where.py").write_text(
        "import os\nfrom dask.distributed import Client\n"
        "def look(): return os.environ['SLURMD_NODENAME'], len(os.sched_getaffinity(0))\n"
        "print(sorted(Client().run(look).values()))\n"
    )
    with slurm.allocation("--cpus-per-task=1") as env:
        done = gputui.run_other(
            *gputui.words(CPUS, "--run", "where.py", "--min-workers", "2"), env=env
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip() == "[('host1', 1), ('host2', 1)]"
        wait_until(lambda: not steps(slurm))


def test_scancel_leaves_nothing_and_the_cluster_says_why(gputui: Command, slurm: Slurm) -> None:
    with slurm.allocation() as env:
        done = gputui.run_other(*gputui.words("up", CPUS, "--name", "job"), env=env)
        assert "job: 2 workers" in done.stdout, done.stderr
        assert len(steps(slurm)) == 2 and len(agents(gputui)) > 4
        slurm("scancel", env["SLURM_JOB_ID"])
        wait_until(lambda: not agents(gputui), why=lambda: str(agents(gputui)))
        wait_until(lambda: slurm.jobs() == [])
        assert scratch(gputui) == []
        said = f"host1: Slurm's job {env['SLURM_JOB_ID']}: its state is C"  # COMPLETING, CANCELLED
        wait_until(lambda: said in gputui("why", "job").stdout)
    gputui("down", "job")


def test_the_death_of_a_head_ends_its_steps(gputui: Command, slurm: Slurm) -> None:
    with slurm.allocation() as env:
        short = env | {"DASK_GPUTUI__LEASE": "2"}
        gputui.run_other(*gputui.words("up", CPUS, "--name", "job"), env=short)
        head = json.loads(gputui("ls", "--json").stdout)[0]["pid"]
        assert len(steps(slurm)) == 2
        os.kill(head, signal.SIGKILL)
        wait_until(lambda: not steps(slurm))
        assert scratch(gputui) == []


def test_a_host_whose_srun_is_killed_comes_back(gputui: Command, slurm: Slurm) -> None:
    with slurm.allocation() as env:
        gputui.run_other(*gputui.words("up", CPUS, "--name", "job"), env=env)
        (head,) = (each["pid"] for each in json.loads(gputui("ls", "--json").stdout))
        before = set(steps(slurm))
        srun = next(pid for pid in gputui.pids() if parent_of(pid) == head and is_srun(pid))
        os.kill(srun, signal.SIGKILL)
        wait_until(lambda: len(set(steps(slurm)) - before) == 1)
        run = ("--attach", "job", "--run", "random-sum", "-p", "size=1000")
        wait_until(lambda: len(gputui.json(*run)["workers"]) == 2)
        gputui("down", "job")
        wait_until(lambda: not steps(slurm))
        # An agent that Slurm killed with its step is swept by the next one.
        gputui.run_other(*gputui.words("doctor", "@slurm gpus=none"), env=env)
        wait_until(lambda: scratch(gputui) == [])


def test_a_batch_script_computes_on_its_own_nodes(gputui: Command, slurm: Slurm) -> None:
    script, out = gputui.folder / "job.sh", gputui.folder / "out"
    words = f"{sys.executable} -m gputui '{CPUS}' --run random-sum -p size=1000 --json"
    script.write_text(f"#!/bin/sh\n{words}\n")
    batch = ("sbatch", "-W", "-N2", f"--chdir={gputui.folder}", f"--output={out}", str(script))
    gputui.run_other(*batch, env=slurm.env)
    assert len(json.loads(out.read_text().splitlines()[-1])["workers"]) == 2, out.read_text()


def test_a_job_that_is_over_is_said_in_words(gputui: Command, slurm: Slurm) -> None:
    done = gputui.run_other(*gputui.words("doctor", "host1 slurm=99999"), env=slurm.env)
    assert done.returncode == 3
    assert "Slurm's job 99999: there is no such job" in done.stdout and "squeue --me" in done.stdout
    with slurm.allocation() as env:
        line = f"host9 slurm={env['SLURM_JOB_ID']}"
        done = gputui.run_other(*gputui.words("doctor", line), env=env)
        assert "host9 is not one of its nodes" in done.stdout


def test_a_program_runs_on_the_nodes_of_a_job(gputui: Command, slurm: Slurm) -> None:
    with slurm.allocation() as env:
        said = ("sh", "-c", "echo $SLURM_JOB_ID $SLURMD_NODENAME; cat")
        words = gputui.words("@slurm gpus=none", "--exec", "-n", "2", "--per", "host", "--", *said)
        done = gputui.run_other(*words, env=env, given="of rank 0\n")
        assert done.returncode == 0, done.stderr
        job = env["SLURM_JOB_ID"]
        for line in (f"{job} host1", f"{job} host2", "of rank 0"):
            assert line in done.stdout
        wait_until(lambda: not steps(slurm))
