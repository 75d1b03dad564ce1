"""Every option in every kind of command: it has its effect, or is refused with what to write."""

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import click
import pytest

from gputui.cli import run_command
from gputui.cli.commands import gputui
from gputui.cli.headless import prepare
from gputui.cli.options import written_options
from gputui.cli.screen import prepare_screen
from gputui.errors import UsageError
from gputui.protocol.connection_file import ConnectionFile, NameLock

Capture = pytest.CaptureFixture[str]

COMMAND = gputui.commands["open"]
OPTIONS = {param.name: param for param in COMMAND.params if isinstance(param, click.Option)}

VALUES = {
    "parameters": "rows=20",
    "name": "lab",
    "workers": "2",
    "busy": "skip",
    "dashboard": "0",
    "metrics": "0",
    "trace": "trace.json",
    "notify": "mail me",
    "min_workers": "2",
    "backend": "numpy",
    "save": "arrays",
    "report": "report.html",
    "figure": "figure.png",
    "seed": "3",
    "theme": "okabe-ito",
    "gpus": "2",
    "wait": "2h",
    "memory_free": "1GiB",
    "per": "gpu",
    "gpus_per_host": "2",
    "cwd": "/tmp",
    "send": "/",
    "pin": "uuid",
}
"""Option → a value other than its default; the others are switches."""

KINDS = {
    "the screen": ("hosts.txt",),
    "the demo": ("--demo", "2x2"),
    "a running cluster": ("--attach", "there"),
    "a preset": ("hosts.txt", "--run", "svd"),
    "a script": ("hosts.txt", "--run", "mine.py"),
    "a preset on a running cluster": ("--attach", "there", "--run", "svd"),
    "a script on a running cluster": ("--attach", "there", "--run", "mine.py"),
    "a program": ("hosts.txt", "--exec"),
    "a program on a running cluster": ("--attach", "there", "--exec"),
}

COMBINED = {"is_program", "preset", "attach", "demo", "version", "spec"}
"""Options that make the kinds; they have tests of their own."""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runtime").mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "runtime"))
    Path("hosts.txt").write_text("localhost")
    Path("cpus.txt").write_text("localhost gpus=none workers=2")
    Path("mine.py").write_text("print(1)")
    lock = NameLock("there", "id")
    lock.publish(ConnectionFile("there", "id", os.getpid(), 0.0, "head.sock", "0"))
    yield
    lock.release()


def prepared(*words: str) -> Any:
    """Return what a command would do, as values that can be compared."""
    argv = ("true",) if "--exec" in words else ()
    context = COMMAND.make_context("gputui", list(words), obj=argv)
    given, options = written_options(context), context.params
    if options["preset"] is None and not argv:
        return parts(prepare_screen(given, options))
    return parts(prepare(argv, given, options))


def parts(work: Callable[..., Any]) -> Any:
    if not isinstance(work, partial):
        return work
    return work.func, *map(parts, work.args), work.keywords


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", sorted(OPTIONS.keys() - COMBINED))
def test_an_option_has_its_effect_or_is_refused_with_what_to_write(name: str, kind: str) -> None:
    written = [OPTIONS[name].opts[0], *([VALUES[name]] if name in VALUES else [])]
    plain = prepared(*KINDS[kind])
    try:
        changed = prepared(*KINDS[kind], *written)
    except UsageError as refusal:
        said = str(refusal)
        assert said.startswith(f"{written[0]}: ") or written[0] == "--tty"
        assert any(
            word in said for word in ("for ", "not with", "write ", "leave ", "gputui --run")
        ), said
    else:
        assert changed != plain, f"{written} changes nothing of {kind}"


@pytest.mark.parametrize("kind", ["the screen", "a preset", "a program"])
def test_so_many_gpus_of_each_host_that_never_add_up_are_refused(kind: str) -> None:
    with pytest.raises(UsageError, match="--gpus 3 is no multiple of 2; write --gpus 4"):
        prepared(*KINDS[kind], "--gpus", "3", "--gpus-per-host", "2")


def test_gpus_of_hosts_that_give_none_are_refused() -> None:
    with pytest.raises(UsageError, match="--gpus: no host gives GPUs: leave out gpus=none"):
        prepared("cpus.txt", "--run", "smoke", "--gpus", "4")


def test_more_workers_than_a_cluster_may_have_are_refused() -> None:
    with pytest.raises(click.BadParameter, match="not in the range 0<=x<=1000000"):
        prepared("hosts.txt", "--workers", "1000001")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--run", "smoke", "--workers", "0"), "--workers 0 only watches: a run needs a worker"),
        (("--exec", "--memory-free", "70"), "--memory-free 70: write its unit, as in .* 70GiB"),
    ],
)
def test_what_cannot_be_meant_is_refused(words: tuple[str, ...], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        prepared("hosts.txt", *words)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("printf", "a\udcff"), "an argument is no UTF-8"),
        (("", "a"), "'' is no program"),
        (("true", *["x"] * 10_000), "true: more than 10,000 arguments of 512 KiB together"),
        (("true", *["x" * 119_000] * 5), "true: more than 10,000 arguments of 512 KiB together"),
        (("true", "\n" * 2**18), "true: more than 10,000 arguments of 512 KiB together"),
    ],
)
def test_arguments_that_cannot_be_sent_are_refused(argv: tuple[str, ...], said: str) -> None:
    context = COMMAND.make_context("gputui", ["--exec"], obj=argv)
    given, options = written_options(context), context.params
    with pytest.raises(UsageError, match=said):
        prepare(context.obj, given, options)


def test_a_demo_by_itself_is_one_of_four_hosts_of_eight_gpus() -> None:
    assert prepared("--demo") == prepared("--demo", "4x8") != prepared("--demo", "4x4")


def test_memory_that_must_be_free_may_be_less_than_a_worker_needs() -> None:
    _, order, *_ = prepared("hosts.txt", "--exec", "--memory-free", "10MiB")
    assert order.wanted.memory_bytes == 10 * 2**20


def test_a_seed_of_a_preset_is_said_to_be_its_parameter() -> None:
    with pytest.raises(UsageError, match="write -p seed=3"):
        prepared("--run", "svd", "--seed", "3")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["down", "lab", "--all"], "leave out --all to stop lab alone"),
        (["up", "hosts.txt", "--", "3"], "gputui --run SCRIPT.py -- 3"),
        (["hosts.txt", "--", "3"], "belongs to a script"),
    ],
)
def test_words_that_would_be_ignored_are_refused(
    words: list[str], says: str, capsys: Capture
) -> None:
    assert run_command(words) == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "usage"),
    [
        (["hosts.txt", "--nonsense"], "gputui [HOSTS] [--run PRESET] [OPTIONS]\n"),
        (["--run"], "gputui [HOSTS] [--run PRESET] [OPTIONS]\n"),
        (["runs", "5", "--nonsense"], "gputui runs [OPTIONS] ID\n"),
        (["up", "--nonsense"], "gputui up [OPTIONS] [HOSTS]\n"),
    ],
)
def test_a_usage_line_is_of_the_command_as_it_was_typed(
    words: list[str], usage: str, capsys: Capture
) -> None:
    assert run_command(words) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"Usage: {usage}Try '{usage.split(' [')[0]} --help'")
