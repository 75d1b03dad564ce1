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
    while "sleeping" not in slow.stderr.readline():
        assert slow.poll() is None
    second = lab.start("--attach", "lab", "--run", "smoke", "--json", "--quiet")
    slow.terminate()
    slow.communicate(timeout=BOUND_S)
    assert slow.returncode == 130
    assert json.loads(second.communicate(timeout=BOUND_S)[0])["result"]["all_right"] is True


@pytest.mark.slow
def test_a_run_that_holds_on_to_its_thread_is_interrupted_all_the_same(lab: Command) -> None:
    deaf = preset(lab, "def compute(job):\n    print('deaf', flush=True)\n    time.sleep(600)")
    process = lab.start("--attach", "lab", "--run", deaf, "--quiet")
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
