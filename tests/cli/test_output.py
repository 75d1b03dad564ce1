"""Where a result may be written: found out before anything starts."""

import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gputui.cli import run_command
from gputui.errors import RunError, UsageError
from gputui.protocol.frontend import Settled
from gputui.runs.execution import RunResult
from gputui.runs.output import checked
from gputui.runs.preset_run import write
from gputui.runs.script_run import workers
from gputui.tui.rendering.figures import figure_text

Capture, Patch = pytest.CaptureFixture[str], pytest.MonkeyPatch


def test_output_that_nobody_reads_is_no_error() -> None:
    read, written = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "gputui", "help", "how-it-works"]
    environ = {**os.environ, "PYTHONUNBUFFERED": "1"}
    done = subprocess.run(command, stdout=written, stderr=subprocess.PIPE, env=environ, check=True)
    os.close(written)
    assert done.stderr == b""


EARLY = """
import sys
from gputui.cli import main
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "click":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Finder())
main([])
"""


def test_ctrl_c_before_anything_has_begun_prints_no_traceback() -> None:
    done = subprocess.run([sys.executable, "-c", EARLY], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (130, "gputui: interrupted\n")


INTERRUPTED = """
import signal, sys
from gputui import cli
cli.run_command = lambda argv: 0 if sys.stdout.write("x" * 1_000_000) else 1
signal.signal(signal.SIGALRM, lambda *_: None)
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
cli.main([])
"""


def test_signals_cut_nothing_off_what_is_written_unbuffered() -> None:
    environ = {**os.environ, "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-c", INTERRUPTED]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environ) as child:
        assert child.stdout is not None
        taken = 0
        while piece := child.stdout.read(10_000):
            taken += len(piece)
            time.sleep(0.002)
    assert (taken, child.returncode) == (1_000_000, 0)


def test_a_folder_for_arrays_is_not_made_before_there_are_any(tmp_path: Path) -> None:
    assert checked(str(tmp_path / "a" / "b"), None, None, figure_text).save == tmp_path / "a" / "b"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "option", "says"),
    [
        ("smoke", "--save", "smoke keeps no arrays; it gives its result (also with --json)\n"),
        ("smoke", "--figure", "smoke draws no figure; it gives its result (also with --json)\n"),
        ("torch", "--save", "it gives its result (also with --json), a figure (--figure)\n"),
        ("MINE", "--save", 'if it does, declare it: Preset(…, arrays=("x",))\n'),
        ("MINE", "--figure", "if it does, declare it: Preset(…, draws=True)\n"),
    ],
)
def test_what_a_preset_does_not_declare_is_refused_before_anything_starts(
    name: str, option: str, says: str, tmp_path: Path, capsys: Capture
) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text(
        "from gputui.presets import Preset\n"
        "PRESET = Preset('mine', 'declares nothing', (), compute=print)\n"
    )
    preset = f"{mine}:PRESET" if name == "MINE" else name
    assert run_command(["--run", preset, option, str(tmp_path / "out")]) == 2
    assert says in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("place", "says"),
    [
        ("file", "file is no directory"),
        ("file/below", "file is no directory"),
        ("full", "has s.npy, u.npy already; name another folder"),
    ],
)
def test_a_folder_that_cannot_take_arrays_is_refused(tmp_path: Path, place: str, says: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "full").mkdir()
    for name in ("u.npy", "s.npy", "notes.txt"):
        (tmp_path / "full" / name).touch()
    with pytest.raises(UsageError, match=says):
        checked(str(tmp_path / place), None, None, figure_text)


@pytest.mark.parametrize("option", ["report", "figure"])
def test_a_file_that_cannot_be_written_is_refused(tmp_path: Path, option: str) -> None:
    for place, says in (("", "is a directory"), ("none/x", "no such folder")):
        given = {"save": None, "report": None, "figure": None, option: str(tmp_path / place)}
        with pytest.raises(UsageError, match=f"--{option} .*{says}"):
            checked(**given, draw=figure_text)


def test_a_figure_is_not_drawn_where_one_object_is_printed(capsys: Capture) -> None:
    assert run_command(["--run", "svd", "--figure", "-", "--json"]) == 2
    assert "--figure - draws where --json prints one object" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "file", "module", "install"),
    [
        ("--dashboard", "0", "bokeh", "pip install 'gputui[report]'"),
        ("--report", "r.html", "bokeh", "pip install 'gputui[report]'"),
        ("--figure", "f.png", "matplotlib", "pip install 'gputui[figure]'"),
    ],
)
def test_a_missing_library_is_said_with_the_install_line_before_anything_starts(
    option: str, file: str, module: str, install: str, monkeypatch: Patch, capsys: Capture
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    assert run_command(["--run", "svd", option, file]) == 2
    printed = capsys.readouterr()
    assert module in printed.err and install in printed.err
    assert "starting" not in printed.err


@pytest.mark.parametrize("name", ["figure", "figure.jpg", "figure.PNG.txt"])
def test_a_figure_s_format_is_refused_before_a_library_is_looked_for(
    name: str, monkeypatch: Patch, capsys: Capture
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert run_command(["--run", "svd", "--figure", name]) == 2
    said = capsys.readouterr().err
    assert "name a file that ends in .png" in said and "matplotlib" not in said


@pytest.mark.parametrize("figure", ["-", "f.png"])
def test_a_figure_that_a_run_does_not_have_is_an_error(figure: str, tmp_path: Path) -> None:
    given = figure if figure == "-" else str(tmp_path / figure)
    result = RunResult("smoke", {}, "numpy", (), 0.1, {}, {}, None, {})
    with pytest.raises(RunError, match="no figure to draw"):
        output = checked(None, None, given, figure_text)
        list(write(output, result, fetch=lambda block: block))


def test_the_workers_of_a_script_are_printed_with_their_devices() -> None:
    settled = Settled(0, ("gpu-a:gpu3.1", "gpu-a:mig0.2", "cpu-a:cpu0"), (), ())
    ongoing: Any = SimpleNamespace(settled=settled, snapshot=None)
    found = [(each["host"], each["device"]) for each in workers(ongoing)]
    assert found == [("gpu-a", "3"), ("gpu-a", "0.2"), ("cpu-a", None)]
