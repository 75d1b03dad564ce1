"""`--exec`: any program on free GPUs, as a user runs it, on this machine and over SSH."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.system.conftest import Command, wait_until
from tests.system.test_sharing import gpus, holding

pytestmark = pytest.mark.usefixtures("four_gpus")


RANK = "import os, sys; print(os.environ['RANK'], os.environ['CUDA_VISIBLE_DEVICES'])"


def test_one_process_is_as_it_would_be_by_itself(gputui: Command) -> None:
    code = "import sys; print(sys.stdin.read().upper(), end=''); print('e', file=sys.stderr)"
    process = gputui.start(
        "--exec", "--quiet", "--", sys.executable, "-c", code, stdin=subprocess.PIPE
    )
    said = process.communicate("no line end", timeout=60)
    assert (process.returncode, *said) == (0, "NO LINE END", "e\n")


def test_a_command_that_runs_a_program_imports_nothing_of_dasks(gputui: Command) -> None:
    gputui.env |= {"PYTHONPROFILEIMPORTTIME": "1", "HOME": str(gputui.folder)}
    said = gputui("--exec", "--quiet", "--", "true").stderr.splitlines()
    imported = {line.rpartition("|")[2].strip().partition(".")[0] for line in said}
    assert "gputui" in imported
    assert not imported & {"dask", "distributed", "numpy", "textual", "asyncssh"}


def test_several_are_named_and_the_first_that_fails_is_the_exit_code(gputui: Command) -> None:
    code = f"import time; {RANK}; rank = int(os.environ['RANK']); time.sleep(2 * rank)"
    code += "; sys.exit(rank * 7)"
    done = gputui("--exec", "-n", "2", "--per", "gpu", "--quiet", "--", sys.executable, "-c", code)
    assert done.returncode == 7
    assert sorted(done.stdout.splitlines()) == ["0 | 0 0", "1 | 1 1"]
    assert "(rank 1, localhost:gpu1) ended with exit status 7" in done.stderr


def test_a_program_is_a_run_with_a_record_and_a_log(gputui: Command) -> None:
    done = gputui("--exec", "-n", "2", "--json", "--", "echo", "{gpus} gpus")
    said = json.loads(done.stdout)
    assert said["preset"] == "exec:echo" and said["result"] == {"exit_code": 0}
    assert said["parameters"] == {"gpus": 2, "arguments": ["echo", "{gpus} gpus"]}
    assert said["workers"][0]["device"] == "0,1"
    assert "2 gpus" in done.stderr
    shown = json.loads(gputui("runs", "last", "--json").stdout)
    assert shown["state"] == "done"
    log = Path(gputui.env["XDG_STATE_HOME"]) / "gputui" / "runs" / shown["id"] / "log.txt"
    assert "0 | 2 gpus" in log.read_text()


@pytest.mark.slow
def test_a_programs_record_says_what_exactly_its_gpus_took(gputui: Command) -> None:
    gpu = {"power_mw": 360_000, "used_mib": 130}
    gputui.env["GPUTUI_FAKE_NVML"] = json.dumps({"gpus": [{"used_mib": 9_000}, gpu, gpu]})
    assert (
        gputui("--exec", "-n", "2", "--memory-free", "138GiB", "--", "sleep", "4").returncode == 0
    )
    used = json.loads(gputui("runs", "last", "--json").stdout)["usage"]
    assert [each["name"] for each in used["devices"]] == ["localhost:gpu1", "localhost:gpu2"]
    assert used["device_memory_peak_bytes"] == 130 * 2**20
    assert 2 * 2.9 < used["gpu_hours"] * 3600 < 2 * 5.0
    assert used["energy_wh"] == pytest.approx(360 * used["gpu_hours"], rel=0.03)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_reaches_the_program_and_nothing_is_left(
    gputui: Command, number: signal.Signals
) -> None:
    code = (
        "import signal, sys, time\n"
        "def end(number, frame): print('got', number, flush=True); sys.exit(5)\n"
        "signal.signal(2, end); signal.signal(15, end); print('up', flush=True); time.sleep(100)"
    )
    process = gputui.start("--exec", "--", sys.executable, "-c", code)
    assert process.stdout and process.stdout.readline() == "up\n"
    process.send_signal(number)
    assert process.stdout.readline() == f"got {int(number)}\n"
    assert process.wait(20) == 130
    assert all(gpu["free"] for gpu in gpus(gputui))


def test_who_stops_waiting_for_gpus_leaves_the_line_without_a_word(gputui: Command) -> None:
    holder = holding(gputui, "-n", "3")
    process = gputui.start("--exec", "-n", "4", "--wait", "60s", "--", "true")
    wait_until(lambda: all(gpu["waiting"] for gpu in gpus(gputui)))
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=20)
    assert process.returncode == 130 and said.endswith("gputui: interrupted\n"), said
    queue = "too few free GPUs: 4 asked for, 1 free\ngputui: who has GPUs, and who waits:\n"
    assert said.count("too few") == 1 and queue in said, said
    assert said.count("\n  localhost gpu") == 3, said
    assert not any(gpu["waiting"] for gpu in gpus(gputui))
    holder.send_signal(signal.SIGINT)


def test_a_program_runs_without_a_gpu_only_where_none_is_asked_for(gputui: Command) -> None:
    gputui.env["GPUTUI_FAKE_NVML"] = json.dumps({"gpus": 0})
    for hosts in ((), ("localhost gpus=none",)):
        done = gputui(*hosts, "--exec", "--", "echo", "ran")
        assert (done.returncode, done.stdout) == (0, "ran\n"), done.stderr
        assert done.stderr.count("echo runs without a GPU on localhost") == 1
    for line, why in (("localhost", "no GPU"), ("localhost gpus=0", "no GPU 0: it has none")):
        done = gputui(line, "--exec", "--", "echo", "ran")
        assert (done.returncode, done.stdout) == (3, "")
        assert f"localhost: {why}" in done.stderr and "gpus=none" in done.stderr
        assert "Error" not in done.stderr


def test_a_host_that_failed_is_named_where_the_others_suffice(gputui: Command) -> None:
    hosts = "localhost;nowhere.invalid"
    done = gputui.ok(hosts, "--exec", "-n", "4", "--json", "--", "sleep", "3")
    assert done.stderr.count("nowhere.invalid: ") == 1, done.stderr
    (failed,) = json.loads(done.stdout)["failed_hosts"]
    assert failed["host"] == "nowhere.invalid"
    assert failed["reason"] in done.stderr


@pytest.mark.slow
def test_a_detached_program_goes_on_and_its_head_ends_after_it(gputui: Command) -> None:
    gputui.env["DASK_GPUTUI__IDLE_TIMEOUT"] = "1"
    done = gputui.ok("--exec", "--detach", "-n", "3", "--name", "job", "--", "sleep", "8")
    run = done.stdout.strip()
    wait_until(lambda: sum(not gpu["free"] for gpu in gpus(gputui)) == 3)
    assert "job" in gputui("ls").stdout
    wait_until(lambda: "no cluster runs" in gputui("ls").stderr + gputui("ls").stdout)
    assert json.loads(gputui("runs", run, "--json").stdout)["state"] == "done"


@pytest.mark.slow
def test_a_detached_program_waits_for_its_hosts_and_is_refused_then(gputui: Command) -> None:
    slow = 'localhost setup="sleep 3"'
    done = gputui(slow, "--exec", "--detach", "-n", "99", "--", "sleep", "60")
    assert done.returncode == 3 and "too few GPUs: 99 asked for, 4 on these hosts" in done.stderr
    assert not done.stdout


@pytest.mark.slow
def test_a_detached_program_that_is_interrupted_before_it_is_named_is_cancelled(
    gputui: Command,
) -> None:
    def states() -> set[str]:
        return {run["state"] for run in json.loads(gputui.ok("runs", "--json").stdout)}

    gputui.ok("up", "--name", "lab", "--workers", "1")
    process = gputui.start("--attach", "lab", "--exec", "--detach", "--", "sleep", "60")
    wait_until(lambda: "running" in states())
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=20)
    if process.returncode == 130:  # else it was named before
        assert not said
        wait_until(lambda: states() == {"cancelled"})


@pytest.mark.parametrize(
    ("program", "status", "said"),
    [
        (("sh", "-c", "exit 5"), 5, "sh (localhost:gpu0) ended with exit status 5"),
        (("no-such-program",), 127, "no-such-program (localhost:gpu0)"),
        (("sh", "-c", "kill -9 $$"), 137, "was killed by SIGKILL"),
    ],
)
def test_a_detached_program_that_ends_at_once_gives_its_exit_code(
    gputui: Command, program: tuple[str, ...], status: int, said: str
) -> None:
    done = gputui("--exec", "--detach", "--", *program)
    assert done.returncode == status and said in done.stderr


def test_a_detached_program_that_is_not_recorded_says_so(gputui: Command) -> None:
    (gputui.folder / "state/gputui").mkdir(parents=True, exist_ok=True)
    (gputui.folder / "state/gputui/runs").write_text("a file in the place of the folder\n")
    done = gputui.ok("localhost gpus=none", "--exec", "--detach", "--", "sleep", "2")
    assert "gputui: this run is not recorded: " in done.stderr


@pytest.mark.slow
def test_a_detached_program_that_gets_no_gpu_says_so(gputui: Command) -> None:
    holding(gputui, "-n", "4")
    done = gputui("--exec", "--detach", "--", "sleep", "60")
    assert done.returncode == 3 and "1 asked for, 0 free" in done.stderr
    waits, other = (
        gputui.ok("--exec", "--detach", "--wait", "1h", "--", "sleep", "60") for _ in range(2)
    )
    assert "it waits: too few free GPUs" in waits.stderr
    assert "gputui attach local-2" in other.stderr
    first, second = (each.stdout.strip() for each in (waits, other))
    assert [line.split()[-3:] for line in gputui.ok("ls").stdout.splitlines()[1:]] == [
        [f"{run},", "no", "workers"] for run in (first, second)
    ]
    assert gputui("down", "local").stderr == f"gputui: local: ends {first}\n"
    assert gputui("down").stderr == f"gputui: local-2: ends {second}\n"
    assert not done.stdout and "no cluster runs" in gputui("ls").stdout + gputui("ls").stderr


def test_a_program_on_a_running_cluster_starts_in_the_folder_of_its_command(
    gputui: Command, tmp_path: Path
) -> None:
    assert gputui("--exec", "--detach", "--name", "job", "--", "sleep", "60").returncode == 0
    gputui.folder = tmp_path / "a folder"
    gputui.folder.mkdir()
    run = gputui("--attach", "job", "--exec", "--detach", "--", "pwd").stdout.strip()

    def shown() -> dict[str, str]:
        found: dict[str, str] = json.loads(gputui("runs", run, "--json").stdout)
        return found

    wait_until(lambda: gputui("runs", run).returncode == 0)  # its command has begun
    wait_until(lambda: shown()["state"] == "done")
    assert shown()["cwd"] == str(gputui.folder)
    log = Path(gputui.env["XDG_STATE_HOME"]) / "gputui" / "runs" / run / "log.txt"
    assert f"0 | {gputui.folder}\n" in log.read_text()
    assert gputui("down", "job").returncode == 0


@pytest.mark.slow
def test_programs_of_one_cluster_get_other_gpus_than_its_workers_and_each_other(
    gputui: Command,
) -> None:
    gputui.ok("up", "--name", "lab", "--workers", "1")
    words = ("--attach", "lab", "--exec", "--quiet", "--", "sh", "-c")
    programs = [gputui.start(*words, "echo $CUDA_VISIBLE_DEVICES; sleep 60") for _ in range(3)]
    assert sorted(each.stdout.readline() for each in programs if each.stdout) == [
        "1\n",
        "2\n",
        "3\n",
    ]
    done = gputui(*words, "true")
    assert done.returncode == 3 and "1 asked for, 0 free" in done.stderr


@pytest.mark.slow
def test_a_terminal_is_passed_through(gputui: Command) -> None:
    code = "import os; print(os.isatty(0)); print(input('name? ')[::-1])"
    terminal = gputui.open("--exec", "--tty", "--quiet", "--", sys.executable, "-c", code)
    terminal.sees("True", "name? ")
    terminal.press("abc\r", "cba")
    assert terminal.exit_status == 0


def test_a_reader_that_goes_away_ends_the_program_as_a_pipe_does(gputui: Command) -> None:
    process = gputui.start("--exec", "-n", "2", "--per", "gpu", "--quiet", "--", "yes")
    assert process.stdout.readline() in ("0 | y\n", "1 | y\n")
    process.stdout.close()
    assert process.wait(30) == 128 + signal.SIGPIPE
    assert process.stderr.read() == ""
    assert all(gpu["free"] for gpu in gpus(gputui))
    shown = json.loads(gputui("runs", "last", "--json").stdout)
    assert (shown["state"], shown["error"]) == ("failed", "nobody reads its output any more")


def test_output_that_has_no_room_ends_the_program_and_says_so(gputui: Command) -> None:
    with Path("/dev/full").open("w") as full:
        done = gputui.run_other(*gputui.words("--exec", "--quiet", "--", "yes"), stdout=full)
    assert done.returncode == 1
    assert "its output cannot be written: No space left on device" in done.stderr
    assert "unexpectedly" not in done.stderr


def test_hosts_that_failed_are_named_where_too_few_gpus_are_left(gputui: Command) -> None:
    done = gputui("localhost; no-such-host.invalid", "--exec", "-n", "5", "--", "true")
    assert done.returncode == 3
    assert "too few GPUs: 5 asked for, 4 on these hosts" in done.stderr
    assert "no-such-host.invalid: no-such-host.invalid does not resolve" in done.stderr


def test_input_that_comes_late_through_a_pipe_that_does_not_block_is_read(gputui: Command) -> None:
    ours, theirs = os.pipe()
    os.set_blocking(ours, False)
    cat = gputui.start("--exec", "--quiet", "--", "cat", stdin=ours)
    time.sleep(1.5)
    os.write(theirs, b"late\n")
    os.close(theirs)
    os.close(ours)
    assert cat.communicate(timeout=60)[0] == "late\n"


def test_a_run_whose_terminal_is_gone_is_cancelled(gputui: Command) -> None:
    terminal = gputui.open("--exec", "--tty", "--quiet", "--", "sh", "-c", "echo begun; sleep 60")
    terminal.sees("begun")
    terminal.close()
    shown = lambda: json.loads(gputui("runs", "last", "--json").stdout)  # noqa: E731
    wait_until(lambda: shown()["state"] != "running", 30)
    assert shown()["state"] == "cancelled"
