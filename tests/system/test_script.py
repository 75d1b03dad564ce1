"""`--run SCRIPT.py`: a plain Python file on a cluster, as if `python` ran it."""

import asyncio
import json
import os
import re
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gputui.client.head_connection import HeadConnection
from gputui.protocol.connection_file import find_cluster
from gputui.protocol.frontend import CancelRun
from tests.sshd import SshHosts
from tests.system.conftest import BOUND_S, Command, wait_until
from tests.system.lab import HERE, last_run, log_of_last_run, running_lab
from tests.system.parts import cluster_of, parts_of

lab = running_lab

CLIENT = "import os, sys, time\nfrom distributed import Client\nclient = Client()\n"


def at_work(command: Command, *arguments: str, **more: Any) -> "subprocess.Popen[str]":
    """Start the command, and return it when its script is at work."""
    process = command.start(*arguments, **more)
    assert process.stdout and process.stdout.readline() == "at work\n"
    return process


def written(path: Path, *lines: str) -> str:
    """Write a script that begins with a client, and return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(CLIENT + "\n".join(lines) + "\n")
    return str(path)


@pytest.mark.slow
def test_a_script_has_its_own_streams_arguments_and_exit_code(gputui: Command) -> None:
    script = written(
        gputui.folder / "mine.py",
        "total = client.submit(sum, [1, 2]).result()",
        "print(__name__, sys.argv[1:], sys.stdin.read(), total)",
        "sys.exit(7)",
    )
    words = gputui.words(HERE, "--run", script, "--", "-v", "a b")
    done = gputui.run_other(*words, given="from a pipe")
    assert done.stdout == "__main__ ['-v', 'a b'] from a pipe 3\n"
    assert done.returncode == 7
    gputui.assert_nothing_left()


def test_keywords_of_a_local_cluster_have_no_effect_and_are_named(gputui: Command) -> None:
    path = gputui.folder / "mine.py"
    path.write_text(CLIENT.replace("Client()", "Client(n_workers=3, processes=False, timeout=9)"))
    done = gputui.ok(HERE, "--run", str(path))
    assert "gputui: Client: no effect on this cluster: n_workers, processes\n" in done.stderr


@pytest.mark.slow
def test_a_record_says_what_workers_sent_each_other_and_what_took_longest(gputui: Command) -> None:
    script = written(
        gputui.folder / "mine.py",
        "one, other = client.nthreads()",
        "made = client.submit(bytes, 2**25, workers=[one])",
        "client.submit(len, made, workers=[other]).result()",
        "for n in range(5):",
        "    client.submit(time.sleep, 0.1, pure=False).result()",
        "time.sleep(3)",
    )
    gputui.ok("localhost gpus=none workers=2 nthreads=1", "--run", script)
    used = json.loads(gputui("runs", "last", "--json").stdout)["usage"]
    assert sum(size for _, size in used["moved"]) >= 2**25
    assert [used["slowest"][0][of] for of in ("prefix", "tasks")] == ["sleep", 5]
    assert " MB between workers" in gputui("runs", "show", "last").stdout


@pytest.mark.slow
def test_a_log_says_how_many_lines_of_workers_it_lacks(lab: Command) -> None:
    script = written(
        lab.folder / "mine.py",
        "def say(line):",
        "    for n in range(20_000):",
        "        print(line, n)",
        "client.submit(say, 'said').result()",
        "client.submit(print, 'the end').result()",
        "time.sleep(3)",
    )
    lab.ok("--attach", "lab", "--run", script)
    log = log_of_last_run(lab)
    assert "the end" in log
    left_out = [int(n.replace(",", "")) for n in re.findall(r"\[([0-9,]+) lines? left out", log)]
    assert sum(left_out) + log.count("said") == 20_000


@pytest.mark.slow
def test_a_script_that_shuts_its_cluster_down_has_ended_well(gputui: Command) -> None:
    script = written(gputui.folder / "mine.py", "client.shutdown()", "print('after')")
    done = gputui(HERE, "--run", script)
    assert (done.returncode, done.stdout) == (0, "after\n"), done.stderr


@pytest.mark.slow
def test_modules_beside_a_script_are_found_on_hosts_that_do_not_have_them(
    gputui: Command, openssh_hosts: SshHosts
) -> None:
    gputui.env |= openssh_hosts.environment
    script = written(
        gputui.folder / "folder" / "mine.py",
        "import dask.array as da, beside.deep",
        "x = da.ones((4, 4), chunks=2).map_blocks(beside.deep.triple)",
        "print(x.sum().compute())",
    )
    package = gputui.folder / "folder" / "beside"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "deep.py").write_text("def triple(x):\n    return 3 * x\n")
    name = openssh_hosts.hosts[0].name
    done = gputui(f"{name} gpus=none workers=1", "--run", script)
    assert (done.returncode, done.stdout) == (0, "48.0\n"), done.stderr


MINE = (
    "import values",
    "print(client.submit(values.get, 1, pure=False).result(), flush=True)",
    "input()",
    "print(client.submit(values.get, 2, pure=False).result(), flush=True)",
)


def with_values(folder: Path, word: str) -> str:
    """Write a script with a module of its own called `values`."""
    script = written(folder / "mine.py", *MINE)
    (folder / "values.py").write_text(f"def get(number):\n    return f'{word} {{number}}'\n")
    return script


@pytest.mark.slow
def test_two_scripts_with_modules_of_one_name_never_run_each_others(lab: Command) -> None:
    scripts = [with_values(lab.folder / word, word) for word in ("one", "other")]
    first = lab.start("--attach", "lab", "--run", scripts[0], stdin=subprocess.PIPE)
    assert first.stdout.readline() == "one 1\n"
    second = lab("--attach", "lab", "--run", scripts[1], "--quiet")
    assert (second.returncode, second.stdout) == (2, "")
    assert f"from {lab.folder / 'one'}: values; wait until that run has ended" in second.stderr
    out, err = first.communicate("\n", timeout=BOUND_S)
    assert (first.returncode, out) == (0, "one 2\n"), err
    third = lab.start("--attach", "lab", "--run", scripts[1], stdin=subprocess.PIPE)
    out, err = third.communicate("\n", timeout=BOUND_S)
    assert (third.returncode, out) == (0, "other 1\nother 2\n"), err


SPAWNS = """
import multiprocessing, os, sys
from distributed import Client
import spawned_beside
def compute(queue):
    with Client() as client:
        queue.put((client.scheduler.address, client.submit(spawned_beside.where).result()))
if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    child = context.Process(target=compute, args=(queue,))
    child.start()
    address, pid = queue.get(timeout=60)
    child.join()
    client = Client()
    print(address == client.scheduler.address, pid in client.run(os.getpid).values())
"""


@pytest.mark.slow
def test_a_client_in_a_spawned_child_of_a_script_finds_the_cluster(lab: Command) -> None:
    script = lab.folder / "spawning" / "mine.py"
    script.parent.mkdir()
    script.write_text(SPAWNS)
    beside = script.with_name("spawned_beside.py")
    beside.write_text("import os\ndef where():\n    return os.getpid()\n")
    done = lab("--attach", "lab", "--run", str(script))
    assert (done.returncode, done.stdout) == (0, "True True\n"), done.stderr


def test_an_error_shows_the_traceback_that_python_would_show(lab: Command) -> None:
    script = written(lab.folder / "mine.py", "print('before')", "{}['no such key']")
    done = lab("--attach", "lab", "--run", script, "--quiet")
    assert (done.returncode, done.stdout) == (1, "before\n")
    assert done.stderr.splitlines() == [
        "Traceback (most recent call last):",
        f'  File "{script}", line 5, in <module>',
        "    {}['no such key']",
        "    ~~^^^^^^^^^^^^^^^",
        "KeyError: 'no such key'",
    ]
    said = "mine.py ended with exit code 1: KeyError: 'no such key'"
    assert last_run(lab)["error"] == said
    assert "traceback | KeyError: 'no such key'" in log_of_last_run(lab)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("last_log_lines", "code", "said"),
    [
        ("os._exit(3)", 3, ""),
        ("os.abort()", 128 + signal.SIGABRT, "gputui: mine.py was ended by SIGABRT\n"),
        ("sys.exit('no data')", 1, "no data\n"),
    ],
)
def test_however_a_script_ends_its_exit_code_is_the_commands(
    lab: Command, last_log_lines: str, code: int, said: str
) -> None:
    done = lab(
        "--attach", "lab", "--run", written(lab.folder / "mine.py", last_log_lines), "--quiet"
    )
    assert (done.returncode, done.stderr) == (code, said)
    assert last_run(lab)["state"] == "failed"


@pytest.mark.slow
def test_a_script_whose_task_kills_workers_says_how_they_ended(gputui: Command) -> None:
    script = written(gputui.folder / "mine.py", "client.submit(os.kill, 0, 9).result()")
    done = gputui(HERE, "--run", script, "--quiet")
    *_, raised, said = done.stderr.splitlines()
    assert "KilledWorker" in raised
    assert re.fullmatch(r"gputui: localhost:\S+ crashed: .*SIGKILL.*; gputui runs show last", said)


@pytest.mark.slow
def test_a_script_whose_scheduler_is_killed_blames_no_worker(gputui: Command) -> None:
    gputui.ok("up", HERE, "--name", "one")
    script = written(
        gputui.folder / "mine.py",
        "futures = client.map(time.sleep, range(600, 660))",
        "print('at work', flush=True)",
        "client.gather(futures)",
    )
    process = at_work(gputui, "--attach", "one", "--run", script)
    (scheduler,) = parts_of(cluster_of(gputui.pids()))["scheduler"]
    os.kill(scheduler, signal.SIGKILL)
    _, err = process.communicate(timeout=BOUND_S)
    assert re.search(r"gputui: scheduler lost: .*SIGKILL.*; gputui runs show last$", err, re.M), err
    assert last_run(gputui)["failure"]["worker"] == "scheduler"


def test_with_json_stdout_has_one_object_and_the_scripts_words_are_elsewhere(lab: Command) -> None:
    script = written(lab.folder / "mine.py", "print('a word')", "client.restart()")
    done = lab("--attach", "lab", "--run", script, "--json")
    printed = json.loads(done.stdout)
    assert printed["result"] == {"exit_code": 0}
    assert [worker["host"] for worker in printed["workers"]] == ["localhost"] * 2
    assert printed["restarts"] == 2
    assert "a word" in done.stderr


def test_nothing_secret_is_where_other_programs_would_see_it(lab: Command) -> None:
    script = written(
        lab.folder / "mine.py",
        "import dask, json",
        "print(json.dumps([dask.config.config, dict(os.environ), sys.argv], default=str))",
    )
    done = lab.ok("--attach", "lab", "--run", script)
    assert "PRIVATE KEY" not in done.stdout
    assert "CERTIFICATE" not in done.stdout


LASTS = (
    "import signal",
    "client.submit(time.sleep, 60)",
    "try:",
    "    print('at work', flush=True)",
    "    time.sleep(60)",
    "finally:",
    "    print('cleaned up', flush=True)",
)
DEAF = ("import signal", "signal.signal(signal.SIGINT, signal.SIG_IGN)", *LASTS)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lines", "last_log_lines"),
    [pytest.param(LASTS, "cleaned up\n", marks=pytest.mark.long), (DEAF, "")],
)
def test_ctrl_c_ends_a_script_and_its_run(
    lab: Command, lines: tuple[str, ...], last_log_lines: str
) -> None:
    process = at_work(lab, "--attach", "lab", "--run", written(lab.folder / "mine.py", *lines))
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=BOUND_S)
    assert (process.returncode, out) == (130, last_log_lines), err
    assert last_run(lab)["state"] == "cancelled"


COUNTS = (
    "told = []",
    "import signal",
    "signal.signal(signal.SIGINT, lambda number, frame: told.append(number))",
    "print('at work', input(), flush=True)",
    "while not told:",
    "    time.sleep(0.05)",
    "time.sleep(0.5)",
    "print('told', len(told), 'times', flush=True)",
)


@pytest.mark.parametrize("way", ["key", "signal", "key, with other input"])
def test_in_a_terminal_a_script_is_interrupted_once(lab: Command, way: str) -> None:
    other = "other input" in way
    lines = (line.replace("input()", "'typed'") if other else line for line in COUNTS)
    before = ("/bin/sh", "-c", 'exec "$@" < /dev/null', "sh") if other else ()
    run = ("--run", written(lab.folder / "mine.py", *lines), "--quiet")
    terminal = replace(lab, before=before).open("--attach", "lab", *run)
    terminal.press("typed\n", "at work typed")
    terminal.type(b"\x03") if "key" in way else os.kill(terminal.pid, signal.SIGTERM)
    assert terminal.exit_status == 130
    assert "told 1 times" in terminal.text


@pytest.mark.slow
def test_a_terminal_that_closes_under_the_bar_of_a_run_cancels_it(gputui: Command) -> None:
    terminal = gputui.open(HERE, "--run", "smoke")
    terminal.sees("starting")
    terminal.close()
    assert last_run(gputui)["state"] == "cancelled"
    gputui.assert_nothing_left()


@pytest.mark.slow
def test_a_script_ends_with_its_command(lab: Command) -> None:
    process = lab.start(
        "--attach", "lab", "--run", written(lab.folder / "mine.py", "print(os.getpid())", *LASTS)
    )
    script = int(process.stdout.readline())
    process.kill()
    process.communicate(timeout=BOUND_S)
    wait_until(lambda: not Path(f"/proc/{script}").exists())


@pytest.mark.slow
def test_a_script_whose_cluster_is_stopped_is_told_and_goes_on(gputui: Command) -> None:
    assert gputui("up", HERE, "--name", "short").returncode == 0
    script = written(
        gputui.folder / "mine.py",
        "print('at work', flush=True)",
        "while not os.path.exists('go'):",
        "    time.sleep(0.05)",
        "print('went on')",
    )
    process = at_work(gputui, "--attach", "short", "--run", script)
    gputui("down", "short")
    while "the cluster was stopped" not in process.stderr.readline():
        assert process.poll() is None
    (gputui.folder / "go").touch()
    out, _ = process.communicate(timeout=BOUND_S)
    assert (process.returncode, out) == (0, "went on\n")


WAITS = (
    "future = client.submit(time.sleep, 600)",
    "print('at work', flush=True)",
    "try:",
    "    future.result()",
    "finally:",
    "    print('cleaned up', flush=True)",
    "    time.sleep(600)",
)


@pytest.mark.slow
def test_a_script_that_waits_for_a_cluster_that_is_stopped_ends_with_one_sentence(
    gputui: Command,
) -> None:
    assert gputui("up", HERE, "--name", "short").returncode == 0
    lines = ("future = client.submit(time.sleep, 600)", "print('at work', flush=True)")
    script = written(gputui.folder / "mine.py", *lines, "future.result()")
    process = at_work(gputui, "--attach", "short", "--run", script, "--quiet")
    assert gputui("down", "short").returncode == 0
    _, said = process.communicate(timeout=BOUND_S)
    assert process.returncode == 3, said
    (line,) = said.splitlines()
    assert line.startswith("gputui: the cluster was stopped: stopped by ")
    record = json.loads(gputui("runs", "last", "--json").stdout)
    assert (record["state"], "gputui: " + record["failure"]["message"]) == ("cancelled", line)


@pytest.mark.slow
def test_a_script_at_work_whose_head_is_killed_says_little(gputui: Command) -> None:
    script = written(
        gputui.folder / "mine.py",
        "futures = client.map(time.sleep, range(600, 660))",
        "print('at work', flush=True)",
        "client.gather(futures)",
    )
    process = at_work(gputui, HERE, "--run", script)
    (head,) = parts_of(cluster_of(gputui.pids()))["head"]
    os.kill(head, signal.SIGKILL)
    _, err = process.communicate(timeout=BOUND_S)
    assert process.returncode == 3 and "the cluster's head is gone" in err
    assert "script.py" not in err and len(err.splitlines()) < 60, err


@pytest.mark.slow
def test_a_script_whose_cluster_is_lost_ends_with_exit_code_3(gputui: Command) -> None:
    script = written(gputui.folder / "mine.py", *WAITS)
    process = at_work(gputui, HERE, "--run", script)
    (head,) = parts_of(cluster_of(gputui.pids()))["head"]
    os.kill(head, signal.SIGKILL)
    killed_at = time.monotonic()
    out, err = process.communicate(timeout=BOUND_S)
    assert (process.returncode, out) == (3, "cleaned up\n"), err
    assert "the cluster's head is gone" in err
    assert time.monotonic() - killed_at < 8  # a second on an idle machine; the lease is ten
    assert last_run(gputui)["state"] == "failed"


@pytest.mark.slow
async def test_a_script_that_another_frontend_cancels_ends_as_cancelled(
    lab: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", lab.env["XDG_RUNTIME_DIR"])
    process = at_work(lab, "--attach", "lab", "--run", written(lab.folder / "mine.py", *LASTS))
    connection_file = find_cluster("lab")
    link = await HeadConnection.open(connection_file.socket, frontend="screen")
    await link.request(CancelRun(0, last_run(lab)["id"]))
    await link.close()
    out, err = await asyncio.to_thread(process.communicate, timeout=BOUND_S)
    assert (process.returncode, out) == (1, "cleaned up\n"), err
    assert last_run(lab)["state"] == "cancelled"
