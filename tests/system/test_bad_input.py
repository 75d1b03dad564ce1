"""What a computation is given, and gives back, that is not as it should be."""

import json
import signal
import subprocess
from collections.abc import Callable

import pytest

from tests.system.conftest import BOUND_S, Command
from tests.system.lab import last_run, preset, running_lab

lab = running_lab

InProcess = Callable[..., "subprocess.CompletedProcess[str]"]

DIES = """
import os, pathlib, signal
from gputui.presets import Outcome, Parameter, Preset

def die_once(folder):
    try:
        (pathlib.Path(folder) / "died").touch(exist_ok=False)
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)

def compute(job):
    job.each_worker(die_once, job["folder"])
    job.client.wait_for_workers(len(job.workers), timeout=60)
    return Outcome({"workers": len(job.client.scheduler_info(n_workers=-1)["workers"])})

PRESET = Preset("dies", "kills a worker", (Parameter("folder", str, "", ""),), compute)
"""


@pytest.mark.slow
def test_a_result_too_large_to_print_is_cut_for_people_and_whole_as_json(lab: Command) -> None:
    many = preset(lab, "def compute(job):\n    return Outcome({'s': list(range(20_000))})")
    arguments = ("--attach", "lab", "--run", many, "--quiet")
    done = lab.ok(*arguments)
    assert "… and 19,988 more" in done.stdout
    assert len(done.stdout) < 1000
    assert len(json.loads(lab(*arguments, "--json").stdout)["result"]["s"]) == 20_000
    assert last_run(lab)["state"] == "done"


@pytest.mark.slow
def test_two_runs_at_once_on_one_cluster_have_each_their_own_result(lab: Command) -> None:
    commands = [
        lab.start("--attach", "lab", "--run", "random-sum", "-p", f"seed={seed}", "-p", "size=2000",
                  "--json", "--quiet")
        for seed in (1, 2)
    ]  # fmt: skip
    printed = [json.loads(command.communicate(timeout=90)[0]) for command in commands]
    assert [each["parameters"]["seed"] for each in printed] == [1, 2]
    assert all(abs(each["result"]["standard_errors"]) < 5 for each in printed)
    assert printed[0]["result"]["sum"] != printed[1]["result"]["sum"]


@pytest.mark.slow
def test_a_second_run_waits_for_the_first_and_goes_on_when_that_is_interrupted(
    lab: Command,
) -> None:
    sleeps = (
        "def compute(job):\n"
        "    slept = job.results(job.map(time.sleep, [0.1] * 5000), 'sleeping')\n"
        "    return Outcome({'slept': len(slept)})"
    )
    slow = lab.start("--attach", "lab", "--run", preset(lab, sleeps))
    assert slow.stderr
    while "sleeping" not in slow.stderr.readline():
        assert slow.poll() is None
    second = lab.start("--attach", "lab", "--run", "smoke", "--json", "--quiet")
    slow.terminate()
    slow.communicate(timeout=BOUND_S)
    assert slow.returncode == 130
    assert json.loads(second.communicate(timeout=BOUND_S)[0])["result"]["all_right"] is True


@pytest.mark.slow
def test_the_only_worker_that_dies_and_comes_back_is_counted_in_the_run(gputui: Command) -> None:
    folder = gputui.folder
    (folder / "dies.py").write_text(DIES)
    hosts = "localhost gpus=none workers=1 nthreads=1 memory=1GiB"
    printed = gputui.json(hosts, "--run", "./dies.py:PRESET", "-p", f"folder={folder}")
    assert printed["result"] == {"workers": 1}
    assert printed["restarts"] == last_run(gputui)["restarts"] == 1
    assert "\nrestarts    1\n" in gputui("runs", "show", "last").stdout


@pytest.mark.slow
def test_a_run_that_holds_on_to_its_thread_is_interrupted_all_the_same(lab: Command) -> None:
    deaf = preset(lab, "def compute(job):\n    print('deaf', flush=True)\n    time.sleep(600)")
    process = lab.start("--attach", "lab", "--run", deaf, "--quiet")
    assert process.stdout
    assert process.stdout.readline() == "deaf\n"
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=BOUND_S)
    assert process.returncode == 130
    assert last_run(lab)["state"] == "cancelled"


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        (("--run", "svdd"), "PresetError"),
        (("--run", "svd", "-p", "rows=0"), "PresetError"),
        (("gpu-a gpu=1", "--run", "svd"), "HostsError"),
        (("--attach", "nothing", "--run", "smoke"), "UsageError"),
        (("--run", "nowhere.py"), "UsageError"),
    ],
)
def test_with_json_a_wrong_word_is_an_object_too(
    in_process: InProcess, arguments: tuple[str, ...], kind: str
) -> None:
    done = in_process(*arguments, "--json")
    error = json.loads(done.stdout)["error"]
    assert (done.returncode, error["type"]) == (2, kind)
    assert error["message"] in done.stderr
