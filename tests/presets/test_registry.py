import subprocess
import sys
from pathlib import Path

import pytest
from distributed import Client

from gputui import presets
from gputui.errors import PresetError, RunError
from gputui.runs import execution


def test_listing_presets_loads_no_heavy_library() -> None:
    code = (
        "import sys; from gputui import presets; [presets.get(n) for n in presets.names()];"
        "print([m for m in ('numpy','dask','distributed','cupy','pandas') if m in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"


MINE = """
from gputui.presets import Outcome, Parameter, Preset

def twice(n):
    return 2 * n

def compute(job):
    return Outcome({"sum": sum(job.results(job.map(twice, range(job["n"]))))})

thing = Preset("thing", "a test", (Parameter("n", int, 4, "how many", minimum=1),), compute)
"""


def test_a_file_is_named_so_that_it_is_found_from_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert presets.located("./mine.py:thing") == f"{tmp_path}/mine.py:thing"
    assert presets.located("svd") == "svd"


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("import nosuchmodule", "does not import: ModuleNotFoundError: No module named"),
        ("raise RuntimeError('no')", "does not import: RuntimeError: no"),
        ("raise SystemExit(3)", "does not import"),
        ("thing = 3", "is a int, not a gputui.presets.Preset"),
        (MINE.replace("thing = ", "thng = "), r"has no 'thing' \(did you mean 'thng'\?\)"),
    ],
)
def test_a_file_without_a_preset_is_said_plainly(tmp_path: Path, source: str, says: str) -> None:
    path = tmp_path / "broken.py"
    path.write_text(source)
    with pytest.raises(PresetError, match=rf"broken\.py.*{says}"):
        presets.get(f"{path}:thing")


def test_what_a_file_prints_as_it_is_imported_is_no_result(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.py").write_text(f"print('imported')\n{MINE}")
    presets.get(f"{tmp_path / 'mine.py'}:thing")
    assert capsys.readouterr() == ("", "imported\n")


def test_a_file_that_is_not_there_is_said_plainly(tmp_path: Path) -> None:
    with pytest.raises(PresetError, match="no such file"):
        presets.get(f"{tmp_path}/none.py:thing")


LAZY = """
import dask
import dask.array as da
from distributed import Client
from gputui.presets import Outcome, Parameter, Preset

def where(block):
    from distributed import get_worker
    return block.astype(object) if get_worker() is None else block * 0 + id(get_worker()) % 97 + 1

def compute(job):
    x = da.ones(4, chunks=2).map_blocks(where, dtype=float)
    computed = [float(x.sum().compute()), float(dask.compute(x.sum())[0])]
    computed.append(float(x.persist().sum().compute()))
    with Client() as client:
        computed.append(client.submit(sum, [1, 2]).result())
    what = {"lazy": x.sum(), "future": job.submit(sum, [1]), "odd": object(), "fine": computed}
    return Outcome({"a": [what[job["what"]]]})

PRESET = Preset("lazy", "x", (Parameter("what", str, "fine", "x"),), compute)
"""


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("fine", ""),
        ("lazy", r"result\['a'\]\[0\] is of type Array\n  give .* job.compute"),
        ("future", r"result\['a'\]\[0\] is of type Future\n  give .* job.results"),
        ("odd", r"result\['a'\]\[0\] is of type object\n  give numbers"),
    ],
)
def test_a_preset_computes_on_the_cluster_and_returns_values(
    client: Client, tmp_path: Path, what: str, said: str
) -> None:
    (tmp_path / "lazy.py").write_text(LAZY)
    preset = presets.get(str(tmp_path / "lazy.py"))
    if not said:
        (found,) = execution.execute(client, preset, {"what": what}, backend="numpy").result["a"]
        assert min(found) >= 3
        return
    with pytest.raises(RunError, match=said):
        execution.execute(client, preset, {"what": what}, backend="numpy")
