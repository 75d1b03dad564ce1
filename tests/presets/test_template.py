"""What `gputui presets new` writes: a preset that runs, and a test of it that passes."""

import pydoc
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from gputui import presets
from gputui.cli import run_command


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
def test_a_new_preset_is_found_and_its_test_passes(folder: Path) -> None:
    assert run_command(["presets", "new", "my-norms"]) == 0
    assert sorted(path.name for path in folder.iterdir()) == ["my_norms.py", "test_my_norms.py"]
    assert presets.get("./my_norms.py").name == "my-norms"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_my_norms.py"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=90)
    assert "1 passed" in ran.stdout, ran.stdout + ran.stderr


@pytest.mark.parametrize("there", ["mine.py", "test_mine.py"])
def test_a_file_that_is_there_is_left_as_it_is(
    folder: Path, there: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / there).write_text("kept")
    assert run_command(["presets", "new", "mine"]) == 2
    assert f"{there} is there already" in capsys.readouterr().err
    assert [(path.name, path.read_text()) for path in folder.iterdir()] == [(there, "kept")]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["svd"], "gputui has a preset of this name"),
        (["random"], "would hide the module of this name"),
        (["numpy"], "would hide the module of this name"),
        (["../up"], "is named as a Python module is"),
        (["class"], "is named as a Python module is"),
        ([], "presets new NAME writes"),
    ],
)
def test_a_name_that_no_file_may_have_is_refused(
    folder: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["presets", "new", *words]) == 2
    assert said in capsys.readouterr().err
    assert list(folder.iterdir()) == []


def test_a_folder_that_takes_no_file_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["presets", "new", "n" * 253]) == 2
    assert "was not written: File name too long" in capsys.readouterr().err


def test_pydoc_alone_names_all_that_a_preset_uses() -> None:
    shown = pydoc.plain(pydoc.render_doc(presets))
    for kind in (presets.Figure, presets.Job, presets.Memory, presets.Machine, presets.Preset):
        assert f"class {kind.__name__}(" in shown
        assert [each.name for each in fields(kind) if each.name not in shown] == []
    for word in ("job.map", "job.persist", "line", "bar", "heat", "logarithmic", "smallest_bytes"):
        assert word in shown
