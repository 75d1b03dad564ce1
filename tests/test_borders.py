"""What others wrote reaches terminals and logs as text that moves no cursor and forges no line."""

import ast
import logging
from dataclasses import replace
from pathlib import Path

import pytest

import gputui.cli
import gputui.runs
from gputui.cli import clusters, listing, run_command
from gputui.errors import HeadError
from gputui.head.__main__ import LogFile, SafeFormatter
from gputui.model.snapshot import RunState
from gputui.model.usage import Failure
from gputui.presets import RunProgress
from gputui.runs import new_record
from gputui.runs.progress import Bar, Progress
from gputui.runs.run import warn

POISON = "\x1b]0;owned\x07\x1b[2J\u202eevil\r\x85\n2026-11-23 INFO gputui: all is well"
"""Sets a title, clears the screen, reverses a line, and forges one."""
NEW_RECORD = new_record("svd", {"rows": 1}, backend="auto", hosts="", version="1", id="one")
OWN_WORDS = {
    "__init__.py:_unwritten": "an errno's words",
    "clusters.py:_up": "what this command's own head says of itself",
    "clusters.py:_up_there": "what the user gave",
    "clusters.py:ls": "hints; `table` makes rows safe",
    "commands.py:completion_": "a script of this package",
    "hosts.py:bootstrap": "what the user gave",
    "hosts.py:claim": "a duration",
    "hosts.py:doctor": "`report` makes what hosts say safe",
    "listing.py:_draw": "this package's documentation",
    "listing.py:_new": "files that this command made",
    "listing.py:list_runs": "`run_table` makes rows safe",
    "listing.py:presets": "code that is installed here",
    "modules.py:send": "a folder of the user's",
    "listing.py:show_help": "this package's documentation",
    "listing.py:show_run": "`parts` makes them safe",
    "headless.py:remove_old_runs": "an errno's words",
    "run.py:print_out": "what the run returns; JSON",
    "script.py:dask_setup": "modules of the user's",
    "terminal.py:_read_line": "made safe by what asks",
}
"""Where the command line and runs print without `safe`, and why that is harmless."""


def harmless(text: str) -> bool:
    return all(line.isprintable() for line in text.split("\n"))


def test_every_print_of_commands_and_runs_makes_text_safe_or_says_why_it_need_not() -> None:
    found = {
        f"{path.name}:{function.name}"
        for package in (gputui.cli, gputui.runs)
        for path in Path(package.__file__).parent.glob("*.py")
        for function in ast.walk(ast.parse(path.read_text()))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for shown in _printed(function)
        if "safe" not in shown and "json" not in shown
    }
    assert found == OWN_WORDS.keys()


def _printed(function: ast.AST) -> list[str]:
    """Return what a function prints and that is no constant."""
    calls = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
    prints = [call for call in calls if ast.unparse(call.func) in ("print", "click.echo")]
    return [
        ast.unparse(value)
        for call in prints
        for value in call.args
        if not (isinstance(value, ast.Constant) or ast.unparse(value).isupper())
    ]


def test_an_error_that_quotes_a_host_is_printed_without_its_control_characters(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise HeadError(f"h1: it said {POISON}")

    monkeypatch.setattr(clusters, "running_clusters", fail)
    assert run_command(["ls"]) == 3
    assert harmless(capsys.readouterr().err)


def test_why_a_program_waits_and_how_it_ended_are_without_control_characters(
    capsys: pytest.CaptureFixture[str],
) -> None:
    warn(f"train.py (gpu-a) was killed: {POISON}")
    Progress().show(RunProgress(f"{POISON} waited first", 0, 0))
    bar = Bar()
    bar.show(RunProgress(f"[link=x]{POISON} waited first", 0, 0))
    bar.close()
    said = capsys.readouterr().err
    assert harmless(said) and "[link=x]" in said


def test_a_listed_cluster_has_no_control_characters() -> None:
    row = {
        "name": POISON,
        "workers": 1,
        "hosts": 1,
        "started": 0,
        "address": POISON,
        "problem": "",
        "runs": [],
        "state": "running",
    }
    lines = clusters.table([row])
    assert len(lines) == 2
    assert all(line.isprintable() for line in lines)


def test_a_recorded_run_is_shown_without_what_its_hosts_smuggled_in() -> None:
    record = replace(NEW_RECORD, parameters={"rows": POISON})
    result = {"result": {POISON: POISON}, "failed_hosts": [{"host": "h", "reason": POISON}]}
    record = replace(
        record,
        state=RunState.FAILED,
        result=result,
        failure=Failure("HeadError", POISON, worker_log=(POISON,)),
    )
    assert len(listing.run_table((record,))) == 2
    assert all(harmless(part) for part in (*listing.run_table((record,)), *listing.parts(record)))


def test_nothing_forges_a_line_of_the_heads_log(tmp_path: Path) -> None:
    log = LogFile(tmp_path / "lab.log")
    log.setFormatter(SafeFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logger = logging.Logger("gputui.head")
    logger.addHandler(log)
    logger.warning("%s: %s", "h1", POISON)
    try:
        raise ValueError(POISON)
    except ValueError:
        logger.exception("h1 failed")
    log.close()
    lines = (tmp_path / "lab.log").read_text().split("\n")
    assert all(line.isprintable() for line in lines)
    assert [line[:2] for line in lines if line and not line.startswith("    ")] == ["20", "20"]
