"""A Mac in front: what is Linux's alone is used on hosts only.

No Mac was at hand: Linux's calls, `/proc` and the name of the system are taken away instead.
"""

import ast
from dataclasses import replace
from pathlib import Path

import pytest

import gputui as package
from tests import mac
from tests.system.conftest import Command
from tests.system.lab import HERE
from tests.system.test_elsewhere import There, there  # noqa: F401

ROOT = Path(package.__file__).parent
ON_LINUX = ("agent", "worker", "head", "process", "fleet/deploy")
"""What runs on hosts, and the names behind which the rest uses it."""
RUN_THERE = {
    "client/there.py": "it is sent to the login machine",
}
CALLS = {name for names in mac.OF_LINUX.values() for name in names} | {"prctl", "O_TMPFILE"}


def of_linux(path: Path) -> set[str]:
    """Return the calls and paths of Linux that stand in a module, its docstrings apart."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    texts = {
        id(each.value) for each in ast.walk(tree) if isinstance(each, ast.Expr)
    }  # docstrings, and the like below a value
    guarded = {
        node.attr
        for test in ast.walk(tree)
        if isinstance(test, ast.If) and "hasattr" in ast.unparse(test.test)
        for node in ast.walk(test)
        if isinstance(node, ast.Attribute)
    }
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in CALLS - guarded:
            found.add(node.attr)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in texts:
            found |= {each for each in mac.HIDDEN if node.value.startswith(f"{each}/")}
    return found


def test_frontends_use_nothing_that_only_linux_has() -> None:
    modules = {str(path.relative_to(ROOT)): path for path in ROOT.rglob("*.py")}
    used = {name: of_linux(path) for name, path in modules.items() if of_linux(path)}
    hosts = {name for name in used if name.startswith(tuple(f"{each}/" for each in ON_LINUX))}
    assert used.keys() - hosts == RUN_THERE.keys()
    assert "process/procfs.py" in hosts  # the walk finds what is there


def on_a_mac(gputui: Command) -> Command:
    """Return the command as it is on a Mac."""
    return replace(gputui, program=(mac.__file__,))


@pytest.mark.parametrize("words", [[], ["localhost"], ["up", "gpu-a"], ["--run", "smoke"]])
def test_a_cluster_is_not_started_there_and_one_sentence_says_so(
    gputui: Command, words: list[str]
) -> None:
    screen = [] if words[:1] in (["up"], ["--run"]) else ["--run", "smoke"]
    done = on_a_mac(gputui)(*words, *screen)
    assert (done.returncode, done.stdout) == (2, "")
    last = done.stderr.splitlines()[-1]
    assert last.startswith("gputui: clusters start on Linux, and localhost is")


@pytest.mark.parametrize("words", [["doctor"], ["who"], ["claim", "-n", "1"]])
@pytest.mark.parametrize("hosts", [[], ["gpu-a,localhost"]])
def test_this_machine_is_no_host_there_of_commands_without_a_cluster(
    gputui: Command, words: list[str], hosts: list[str]
) -> None:
    command, *options = words
    done = on_a_mac(gputui)(command, *hosts, *options)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "gputui: localhost is no host here: its agent needs Linux; name other machines\n"
    )


@pytest.mark.slow
@pytest.mark.parametrize("words", [["localhost"], ["watch", "localhost"]])
def test_a_screen_on_this_machine_says_there_that_it_is_no_host(
    gputui: Command, words: list[str]
) -> None:
    on_a_mac(gputui).open(*words).sees("localhost is no host here")


def test_what_runs_and_what_was_run_is_listed_there(gputui: Command) -> None:
    assert on_a_mac(gputui).ok("ls").stdout == ""
    on_a_mac(gputui).ok("runs")


@pytest.mark.slow
def test_a_cluster_on_a_login_machine_is_started_listed_and_computes_from_there(
    there: There,  # noqa: F811
) -> None:
    here = on_a_mac(there.gputui)
    started = ("up", HERE, "--workers", "1", "--name", "mac", "--on", there.login)
    for words, said in (
        (started, "mac: 1 worker"),
        (("down", f"{there.login}:mac"), "stopped"),
        (("ls", there.login), "lab"),
        (("--attach", there.name, "--run", "random-sum", "-p", "size=1000"), "sum"),
        (("runs", "show", "last"), "done"),
    ):
        assert said in here.ok(*words).stdout


@pytest.mark.slow
def test_the_screen_shows_the_demo_and_a_cluster_elsewhere_there(
    there: There,  # noqa: F811
) -> None:
    for words, seen in ((["--demo", "2x2"], "SIMULATED"), (["attach", there.name], "lab")):
        screen = on_a_mac(there.gputui).open(*words)
        screen.sees(seen, "running")
        screen.kill()
