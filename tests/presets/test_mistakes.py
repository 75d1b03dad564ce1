"""A preset's file: mistakes are said with their line and what to write; it runs on the cluster."""

import re
from pathlib import Path

import pytest
from distributed import Client

from gputui import presets
from gputui.errors import ClusterError, PresetError, RunError
from gputui.presets import RunWorker
from gputui.presets.workers import refuse_unfit
from gputui.runs import execution

RIGHT = """\
from gputui.presets import Memory, Outcome, Parameter, Preset

def compute(job):
    return Outcome({"n": job["n"]}, arrays={"x": [1.0]})

def estimate(values, machine):
    return Memory(values["n"])

PRESET = Preset(
    "mine",
    "a test",
    (Parameter("n", int, 4, "how many", minimum=1), Parameter("m", float, 1, "how much")),
    compute,
    estimate=estimate,
    arrays=("x",),
)
"""


def changed(folder: Path, before: str, after: str) -> str:
    """Write the right file with one mistake, and return its path."""
    assert before in RIGHT
    (folder / "mine.py").write_text(RIGHT.replace(before, after, 1))
    return str(folder / "mine.py")


@pytest.mark.parametrize(
    ("before", "after", "line", "said"),
    [
        ("1), Par", "1) Par", "12", "Perhaps you forgot a comma?"),
        ("1), Par", "1)(Par", "", "does not import"),
        ('("x",)', '("x")', "9", "write arrays=('x',)"),
        (', Parameter("m", float, 1, "how much")', "", "9", "write parameters=(Parameter(…),)"),
        ("int, 4", 'int, "4"', "12", "parameter n: default='4' is text: write default=4"),
        ("int, 4", "int, 4.5", "12", "default=4.5: write an integer of at least 1"),
        ("int, 4", "int, 0", "12", "default=0: write an integer of at least 1"),
        ("int, 4", "list, 4", "12", "write type=int, float, str or bool"),
        ("compute,", '"compute",', "9", "write the name of a function"),
        ('("x",)', "(1,)", "9", "arrays holds 1: write a str"),
        ('Parameter("m"', 'Parameter("n"', "9", "two parameters are named 'n'"),
    ],
    ids=range(11),
)
def test_a_mistake_is_found_when_the_file_is_read(
    tmp_path: Path, before: str, after: str, line: str, said: str
) -> None:
    with pytest.raises(PresetError) as caught:
        presets.get(changed(tmp_path, before, after))
    assert said in str(caught.value)
    assert re.search(rf"mine\.py(:|, line ){line}", str(caught.value)) or not line


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("import nosuchmodule", "does not import: ModuleNotFoundError: No module named"),
        ("raise RuntimeError('no')", "does not import: RuntimeError: no"),
        ("raise SystemExit(3)", "does not import"),
        ("PRESET = 3", "is a int, not a gputui.presets.Preset"),
        (RIGHT.replace("PRESET =", "PRESENT ="), r"has no 'PRESET' \(did you mean 'PRESENT'\?\)"),
        (None, "no such file"),
    ],
)
def test_a_file_without_a_preset_is_said_plainly(
    tmp_path: Path, source: str | None, says: str
) -> None:
    path = tmp_path / "broken.py"
    if source:
        path.write_text(source)
    with pytest.raises(PresetError, match=rf"broken\.py.*{says}"):
        presets.get(f"{path}:PRESET")


def test_what_a_file_prints_as_it_is_imported_is_no_result(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.py").write_text(f"print('imported')\n{RIGHT}")
    presets.get(f"{tmp_path / 'mine.py'}:PRESET")
    assert capsys.readouterr() == ("", "imported\n")


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (
            'Memory(values["n"])',
            'Memory(values["k"])',
            r"of mine failed: KeyError: 'k' \(mine\.py:",
        ),
        ('Memory(values["n"])', "8 * 4", "estimate of mine returned 32\n  write return Memory"),
        (', arrays={"x": [1.0]}', "", "returned no x\n  write Outcome"),
    ],
    ids=range(3),
)
def test_a_mistake_is_found_when_the_preset_runs(
    client: Client, tmp_path: Path, before: str, after: str, said: str
) -> None:
    preset = presets.get(changed(tmp_path, before, after))
    with pytest.raises(RunError, match=said):
        execution.execute(client, preset, {}, backend="numpy", keep_arrays=True)


def test_a_check_that_fails_itself_is_said_as_a_mistake_of_the_preset(tmp_path: Path) -> None:
    path = changed(tmp_path, "compute,\n", "compute,\n    check=lambda values: values['k'],\n")
    with pytest.raises(PresetError, match="mine: its check of the parameters failed: KeyError"):
        presets.parse(presets.get(path), {}).complete("numpy")


def test_a_run_ends_whatever_its_task_raises(client: Client, tmp_path: Path) -> None:
    path = changed(
        tmp_path, "return Outcome", "job.results([job.submit(fail)])\n    return Outcome"
    )
    with Path(path).open("a") as file:
        file.write("class Panic(BaseException): ...\ndef fail():\n    raise Panic('inside')\n")
    with pytest.raises(RunError, match="mine failed: Panic: inside"):
        execution.execute(client, presets.get(path), {}, backend="numpy")


def test_the_file_without_a_mistake_runs(client: Client, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(RIGHT)
    preset = presets.get(str(tmp_path / "mine.py"))
    result = execution.execute(client, preset, {}, backend="numpy", keep_arrays=True)
    assert result.result == {"n": 4}


@pytest.mark.parametrize(
    ("worker", "says"),
    [
        ("localhost:cpu0", "pip install 'gputui[torch]'"),
        ("gpu-a:cpu0", "there: pip install 'torch' for the Python of its workers"),
    ],
)
def test_a_library_is_installed_on_a_host_without_gputui(worker: str, says: str) -> None:
    preset = presets.get("torch")
    lacking = RunWorker(worker, "tcp://a", "a", None, None, 1, 2**30, missing=("torch",))
    with pytest.raises(ClusterError) as caught:
        refuse_unfit(preset, [lacking])
    assert str(caught.value).splitlines()[1].strip() == says


def test_a_file_is_named_so_that_it_is_found_from_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert presets.located("./mine.py:thing") == f"{tmp_path}/mine.py:thing"
    assert presets.located("svd") == "svd"


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
