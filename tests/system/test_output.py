"""What a run writes beside its result and in its log, and a disk that does not take it."""

import json
import os
import re
import resource
import signal
import urllib.request
from pathlib import Path

import numpy as np
import pytest

from tests.system.conftest import BOUND_S, Command, wait_until
from tests.system.lab import HERE, last_run, log_of_last_run, preset, running_lab

lab = running_lab

SVD = ("--attach", "lab", "--run", "svd", "-p", "rows=4000", "-p", "cols=50")
U_BYTES = 4000 * 50 * 8


@pytest.mark.slow
def test_arrays_figure_and_report_are_written_and_recorded(lab: Command) -> None:
    out = lab.folder / "out"
    files = ("--save", str(out), "--figure", "s.png", "--report", "r.html")
    printed = lab.json(*SVD, *files)
    u, s, v = (np.load(out / f"{name}.npy") for name in "usv")
    np.testing.assert_allclose(s[:10], printed["result"]["singular_values"], rtol=1e-12)
    np.testing.assert_allclose(u.T @ u, np.eye(50), atol=1e-12)
    np.testing.assert_allclose(v.T @ v, np.eye(50), atol=1e-12)
    assert (lab.folder / "s.png").read_bytes().startswith(b"\x89PNG")
    assert "<html" in (lab.folder / "r.html").read_text()
    assert {Path(path).name for path in last_run(lab)["saved"]} == {
        "u.npy", "s.npy", "v.npy", "s.png", "r.html",
    }  # fmt: skip


def test_a_terminal_that_is_not_utf_8_gets_result_and_figure_in_ascii(lab: Command) -> None:
    lab.env["PYTHONIOENCODING"] = "ascii"
    try:
        done = lab(*SVD, "--figure", "-", "--quiet")
        again = lab("runs", "show", "last")
    finally:
        del lab.env["PYTHONIOENCODING"]
    for printed in (done, again):
        assert (printed.returncode, printed.stderr) == (0, "")
        assert "singular values" in printed.stdout and "+----" in printed.stdout
        assert printed.stdout.isascii()


def test_in_a_terminal_bars_stand_still_above_the_result_and_its_figure(lab: Command) -> None:
    terminal = lab.open(*SVD)
    terminal.sees("svd on 2 workers")
    bars, _, result = terminal.text.partition("singular values")
    assert "two passes" in bars and "━" in bars
    assert "┤" in result and "━" not in result


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="a disk of its own needs root")
def test_a_disk_too_small_for_the_arrays_leaves_the_result_and_no_file(lab: Command) -> None:
    out = lab.folder / "small"
    out.mkdir()
    command = lab.words(*SVD, "--save", str(out), "--quiet")
    mount = f'mount -t tmpfs -o size={U_BYTES // 2} tmpfs "$0" && "$@"; echo $? $(ls "$0")'
    done = lab.run_other("unshare", "-m", "sh", "-c", mount, str(out), *command)
    assert done.stdout.splitlines()[-1] == "1", done.stderr
    assert "singular values" in done.stdout
    assert "u.npy: No space left on device" in done.stderr
    assert last_run(lab)["state"] == "failed"
    assert last_run(lab)["result"]["result"]["singular_values"]


def test_a_disk_that_fills_up_while_saving_leaves_no_half_file(lab: Command) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (U_BYTES // 2, U_BYTES // 2))

    out = lab.folder / "limited"
    process = lab.start(*SVD, "--save", str(out), "--json", preexec_fn=limit)
    printed, said = process.communicate(timeout=90)
    assert process.returncode == 1, said
    assert "File too large" in json.loads(printed)["error"]["message"]
    assert not out.exists()


@pytest.mark.slow
def test_a_disk_without_room_for_figure_and_report_leaves_the_result(lab: Command) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (16_000, 16_000))

    for option, name in (("--figure", "full.png"), ("--report", "full.html")):
        process = lab.start(*SVD, option, name, preexec_fn=limit)
        printed, said = process.communicate(timeout=90)
        assert process.returncode == 1, said
        assert f"{option} {name}: File too large" in said
        assert "singular values" in printed
        assert not (lab.folder / name).exists()


def test_ctrl_c_while_saving_leaves_no_half_file(lab: Command) -> None:
    code = (
        "def slow(block):\n    time.sleep(0.2)\n    return block\n"
        "def compute(job):\n    import dask.array as da\n"
        "    return Outcome({}, arrays={'x': da.ones(1000, chunks=1).map_blocks(slow)})\n"
    )
    slow, out = preset(lab, code, more=", arrays=('x',)"), lab.folder / "interrupted"
    process = lab.start("--attach", "lab", "--run", slow, "--save", str(out))
    wait_until(lambda: list(out.glob("x.npy")))
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=BOUND_S)
    assert process.returncode == 130
    assert not out.exists()
    assert last_run(lab)["state"] == "cancelled"


def test_a_run_that_fails_is_recorded_with_its_error_and_log(lab: Command) -> None:
    code = (
        "def divide():\n    print('dividing')\n    return 1 / 0\n"
        "def compute(job):\n    return Outcome({'x': job.results([job.submit(divide)])})"
    )
    done = lab("--attach", "lab", "--run", preset(lab, code), "--json")
    record = last_run(lab)
    assert (done.returncode, record["state"], record["error_type"]) == (1, "failed", "RunError")
    assert "division by zero" in json.loads(done.stdout)["error"]["message"]
    assert "ZeroDivisionError" in record["error"]
    assert "failed mine failed: ZeroDivisionError" in log_of_last_run(lab)


@pytest.mark.slow
def test_a_log_begins_with_its_own_run_on_a_cluster_that_was_there_before(lab: Command) -> None:
    for words in ("said before", "said now"):
        code = (
            f"def say():\n    print('{words}')\n"
            "def compute(job):\n    said = job.each_worker(say)\n"
            "    job.each_worker(time.sleep, 1)\n    return Outcome({'said': len(said)})"
        )
        lab.ok("--attach", "lab", "--run", preset(lab, code), "--quiet")
    log = log_of_last_run(lab)
    assert log.splitlines()[0].endswith("  starting")
    assert log.count("said now") == 2
    assert "said before" not in log


@pytest.mark.slow
def test_where_the_dashboard_is_served_is_told(gputui: Command) -> None:
    done = gputui("up", HERE, "--name", "my lab", "--dashboard", "0")
    assert "gputui attach 'my lab'; gputui down 'my lab'" in done.stderr
    told = re.search(r"dashboard at (http://127\.0\.0\.1:\d+/status)", done.stderr)
    assert told, done.stderr
    assert urllib.request.urlopen(told[1], timeout=30).status == 200
    done = gputui("--attach", "my lab", "--run", "mean", "-p", "rows=1000")
    assert told[0] in done.stderr
