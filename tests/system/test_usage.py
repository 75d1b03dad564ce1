"""Wrong words: exit 2, everything said at once, nothing started, no traceback."""

import io
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.system.conftest import Command

InProcess = Callable[..., "subprocess.CompletedProcess[str]"]

AT_ONCE_S = 0.5
"""Of a processor: the machine may be busy with something else."""


def refusal(done: "subprocess.CompletedProcess[str]") -> str:
    """Return what was said of wrong words."""
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


def test_mistakes_in_a_hosts_file_are_named_at_once_within_half_a_second_of_work(
    gputui: Command,
) -> None:
    (gputui.folder / "hosts.txt").write_text("a gpu=0\nb\nc memory=much\nd:port\n")
    before = os.times()
    said = refusal(gputui("hosts.txt", "--run", "svd"))
    after = os.times()
    assert re.findall(r"hosts\.txt:(\d+): ", said) == ["1", "3", "4"]
    assert "did you mean 'gpus'?" in said
    user, system = after.children_user, after.children_system
    assert user - before.children_user + system - before.children_system < AT_ONCE_S


BAD_FILES = {
    "empty": (b"", "is empty: it names no host; write one a line"),
    "a program": (b"\x7fELF\x02\x01\x01\x00\xff\xfe", "not a text"),
    "comments": (b"# gpu-a\n\n", "has comments only: it names no host"),
    "large": (b"a" * 2**21, "a hosts file of more than 1048576 bytes"),
}


@pytest.mark.parametrize("what", BAD_FILES)
def test_a_file_that_is_no_hosts_file_is_refused_by_its_name(
    in_process: InProcess, tmp_path: Path, what: str
) -> None:
    content, says = BAD_FILES[what]
    (tmp_path / "hosts.txt").write_bytes(content)
    said = refusal(in_process("hosts.txt", "--run", "svd"))
    assert "hosts.txt" in said
    assert says in said


def test_a_file_and_a_host_may_have_names_beyond_ascii(gputui: Command) -> None:
    (gputui.folder / "rechner-küche.txt").write_text("rechner-ä.invalid\n", encoding="utf-8")
    done = gputui("rechner-küche.txt", "--run", "svd")
    assert done.returncode == 3
    assert "rechner-ä.invalid does not resolve" in done.stderr
    assert "Traceback" not in done.stderr


def test_hosts_come_from_stdin_too(gputui: Command) -> None:
    process = gputui.start("-", "--run", "svd", stdin=subprocess.PIPE)
    _, err = process.communicate("gpu-a gpu=0\n", timeout=30)
    assert (process.returncode, ":1: unknown key 'gpu'" in err) == (2, True), err


@pytest.mark.parametrize(("text", "says"), [("", "is empty"), ("# a\n", "has comments only")])
def test_a_standard_input_without_hosts_is_said_to_be_so(
    in_process: InProcess, monkeypatch: pytest.MonkeyPatch, text: str, says: str
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    said = refusal(in_process("-", "--run", "svd"))
    assert f"standard input: {says}: it names no host; write one a line" in said


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--run", "svdd"), "did you mean 'svd'?"),
        (("--run", "svd", "-p", "row=3"), "did you mean 'rows'"),
        (("--run", "svd", "-p", "rows=0"), "must be an integer of at least 1"),
        (("--run", "svd", "-p", "rows=many"), "must be an integer"),
        (("--run", "svd", "-p", "dtype=int8"), "float32"),
        (("--run", "svd", "-p", "rows"), "write key=value"),
        (("--run", "svd", "-p", "rows=1", "-p", "rows=2"), "given twice"),
        (("--run", "svd", "--backend", "jax"), "is not one of"),
        (("--run", "svd", "--workers", "none"), "is not a valid integer"),
        (("--run", "./nowhere.py"), "No such file"),
        (("--run", "."), "unknown preset '.'"),
        (("--run", "dir.py"), "--run dir.py: Is a directory"),
        (("--run", "dir.py:PRESET"), "dir.py: is a folder"),
        (("--run", "mine:PRESET"), "did you mean ./mine.py:PRESET?"),
        (("--run", "mine"), "did you mean ./mine.py?"),
        (("--run", "other:PRESET"), "a preset in a file is ./FILE.py:PRESET"),
        (("--run", "work.ipynb"), "a notebook; jupyter nbconvert --to script work.ipynb"),
        (("mine.py",), "to run it: gputui HOSTS --run mine.py"),
        (("mine:PRESET",), "a preset is run by --run mine.py:PRESET"),
        (("work.ipynb",), "work.ipynb: is a notebook; open it in Jupyter"),
        (("nowhere.txt", "--run", "svd"), "no such file"),
        (("no/where", "--run", "svd"), "no such file"),
        (("dir.py/", "--run", "svd"), "is a directory"),
        (("", "--run", "svd"), "HOSTS: is empty: it names no host"),
        (("a gpus=0;b gpu=0", "--run", "svd"), "HOSTS:2: unknown key 'gpu'"),
        (("--nonsense",), "No such option"),
        (("up", "--json"), "No such option: --json; it is of gputui, gputui ls, "),
        (("hosts.tx", "--run", "svd"), "hosts.tx: no such file (did you mean hosts.txt?)"),
        (("host.txt", "--run", "svd"), "host.txt: no such file (did you mean hosts.txt?)"),
        (("a memory=64", "--run", "svd"), "memory='64': a worker needs 100MiB at least"),
        (("a memory=10MiB", "--run", "svd"), "a worker needs 100MiB at least"),
        (("--run", "svd", "--figure", "f.gif"), "name a file that ends in .png"),
        (("--attach", "x", "hosts", "--run", "svd"), "not both"),
        (("--attach", "nothing", "--run", "svd"), "no cluster is called 'nothing'"),
        ((), "the screen needs a terminal"),
        (("bootstrap",), "gputui bootstrap hosts.txt"),
        (("bootstrap", "localhost"), "gputui doctor "),
        (("-p", "rows=3", "--json"), "-p, --json: for --run"),
        (("--attach", "x", "hosts"), "not both"),
        (("--attach", "--run", "smoke"), "--attach: write the cluster's NAME behind it"),
        (("--attach", "--json", "--run", "smoke"), "--attach: write the cluster's NAME"),
        (("watch",), "the screen needs a terminal; without one: gputui who [HOSTS]"),
        (("attach",), "without one: gputui --attach NAME --run PRESET"),
        (("--demo", "0x8"), "1 to 4,096 hosts of 1 to 64 GPUs"),
        (("--demo", ""), "write HOSTSxGPUS, such as 125x8"),
        (("--demo", "4x4", "hosts"), "give neither HOSTS nor --attach"),
        (("localhost", "gpus=none", "--run", "svd"), "are one word: 'HOST gpus=none'"),
        (("doctor", "a", "gpus=0", "nthreads=2"), "are one word: 'HOST gpus=0 nthreads=2'"),
        (("down", "nothing"), "no cluster is called 'nothing'"),
        (("down", "--all", "x", "y"), "unexpected extra argument"),
        (("a python=/nowhere memory=much", "--run", "svd"), "HOSTS:1: memory='much'"),
        (("run", "svd"), "no command 'run'; did you mean gputui --run PRESET?"),
        (("atach", "lab"), "no command 'atach'; did you mean gputui attach?"),
        (("logs", "lab"), "did you mean gputui attach, view 4, or gputui runs show ID?"),
        (("hosts.txt", "lab"), "unexpected extra argument"),
        (("gpu-a", "gpu-b"), "unexpected extra argument"),
        (("up", "--name", "a/b"), "'a/b' cannot name a cluster"),
        (("--run", "svd", "--name", ""), "'' cannot name a cluster"),
        (("--run", "svd", "rows=3"), "a parameter is written -p rows=3"),
        (("--run", "svd", "--workers", "2", "--min-workers", "5"), "is more than --workers 2"),
        (("--run", "svd", "--", "3"), "for a preset write -p key=value"),
        (("--run", "broken.py:PRESET"), "No module named 'no_such_module'"),
        (("--run", "broken.py"), "write --run broken.py:PRESET"),
        (("--run", "mine.py", "-p", "rows=3"), "gputui --run mine.py -- 3"),
        (("--run", "mine.py", "--save", "out"), "a script writes its own files"),
        (("--exec",), "the program comes after --"),
        (("--exec", "--workers", "2", "--", "true"), "--exec starts none"),
        (("--per", "gpu"), "for --exec -- CMD"),
        (("--exec", "--run", "svd", "--", "true"), "give --run PRESET or --exec"),
        (("--exec", "--tty", "--", "true"), "--tty passes on this terminal"),
        (("--exec", "--wait", "soon", "--", "true"), "is not a span of time"),
        (("--exec", "--send", "none", "--", "true"), "does not exist"),
        (("--exec", "--send", ".", "--cwd", "/", "--", "true"), "leave out --cwd"),
        (("--exec", "--send", "", "--", "true"), "'' does not exist"),
        (("--exec", "--per", "once", "-n2", "--gpus-per-host", "2", "--", "a"), "are of one host"),
        (("--attach", "me@x:a", "--exec", "--send", ".", "--", "true"), "of another machine"),
        (("claim", "--list", "--for", "3h"), "--for and --note: for GPUs that are to be claimed"),
        (("claim", "--for", "1x"), "is not a span of time: write 90s, 30m, 2h or 1d"),
        (("up", "--wait", "2h"), "--wait: for --gpus N, or gpus=free:N in HOSTS"),
        (("up", "--memory-free", "1GiB"), "--memory-free: for --gpus N, or gpus=free:N in HOSTS"),
        (("up", "--workers", "0"), "--workers 0"),
        (("--run", "svd", "--workers", "0"), "--workers 0"),
    ],
)
def test_a_wrong_word_is_exit_2_with_what_to_write(
    in_process: InProcess, tmp_path: Path, arguments: tuple[str, ...], says: str
) -> None:
    (tmp_path / "hosts.txt").write_text("gpu-a\n")
    (tmp_path / "dir.py").mkdir()
    (tmp_path / "broken.py").write_text(
        "import no_such_module\nPRESET = Preset('x', '', (), print)"
    )
    for name in "mine.py", "work.ipynb":
        (tmp_path / name).touch()
    assert says in refusal(in_process(*arguments))
