import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client

from gputui import presets
from gputui.errors import PresetError, RunError
from gputui.run import execution


def test_every_listed_preset_is_there_under_its_name() -> None:
    assert [presets.get(name).name for name in presets.names()] == list(presets.names())


def test_listing_presets_loads_no_heavy_library() -> None:
    code = (
        "import sys; from gputui import presets; [presets.get(n) for n in presets.names()];"
        "print([m for m in ('numpy','dask','distributed','cupy','pandas') if m in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"


def test_an_unknown_preset_is_answered_with_the_nearest_names() -> None:
    with pytest.raises(PresetError, match=r"unknown preset 'svdd' \(did you mean 'svd'"):
        presets.get("svdd")


def test_every_wrong_parameter_is_reported_at_once() -> None:
    given = {"rows": "0", "colls": "3", "check": "maybe", "method": "qr"}
    with pytest.raises(PresetError) as caught:
        presets.parse_parameters(presets.get("svd"), given)
    text = str(caught.value)
    assert "rows=0: must be an integer of at least 1" in text
    assert "no parameter 'colls' (did you mean 'cols'" in text
    assert "check=maybe: must be true or false" in text
    assert "method=qr: must be one of auto, tsqr, gram, randomized" in text


@pytest.mark.parametrize("text", ["1000000", "1_000_000", "1e6"])
def test_whole_numbers_may_be_written_in_several_ways(text: str) -> None:
    assert presets.parse_parameters(presets.get("svd"), {"rows": text}) == {"rows": 1_000_000}


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "1.5", "", "1e999", "٣٫٥"])
def test_what_is_no_whole_number_is_refused(text: str) -> None:
    with pytest.raises(PresetError):
        presets.parse_parameters(presets.get("svd"), {"rows": text})


def test_a_default_may_differ_on_cpus() -> None:
    preset = presets.get("random-sum")
    assert presets.complete(preset, {}, "cupy")["size"] == 500_000
    assert presets.complete(preset, {}, "numpy")["size"] < 500_000


MINE = """
from gputui.presets import Outcome, Parameter, Preset

def twice(n):
    return 2 * n

def compute(job):
    return Outcome({"sum": sum(job.results(job.map(twice, range(job["n"]))))})

thing = Preset("thing", "a test", (Parameter("n", int, 4, "how many", minimum=1),), compute)
"""


def test_a_preset_comes_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(MINE)
    assert presets.get(f"{path}:thing").name == "thing"


def test_a_file_without_a_named_thing_is_its_preset(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(MINE + "PRESET = thing\n")
    assert presets.get(str(path)).name == "thing"


def test_a_file_is_named_so_that_it_is_found_from_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert presets.located("./mine.py:thing") == f"{tmp_path}/mine.py:thing"
    assert presets.located("svd") == "svd"


def test_a_misspelt_thing_in_a_file_is_answered_with_what_is_there(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(MINE)
    with pytest.raises(PresetError, match="did you mean 'thing'"):
        presets.get(f"{path}:thng")


@pytest.mark.parametrize("source", ["import nosuchmodule", "def (", "raise RuntimeError('no')"])
def test_a_file_that_does_not_import_is_said_plainly(tmp_path: Path, source: str) -> None:
    path = tmp_path / "broken.py"
    path.write_text(source)
    with pytest.raises(PresetError, match=r"broken\.py does not import"):
        presets.get(f"{path}:thing")


def test_a_file_that_is_not_there_is_said_plainly(tmp_path: Path) -> None:
    with pytest.raises(PresetError, match="there is no such file"):
        presets.get(f"{tmp_path}/none.py:thing")


def test_parameters_that_go_together_nowhere_are_refused_before_any_worker_is_known() -> None:
    preset = presets.get("svd")
    for given in ({"method": "randomized", "k": "9", "cols": "3"}, {"rows": "1e12"}):
        with pytest.raises(PresetError, match="at most"):
            presets.checked(preset, given, "auto")
    assert presets.checked(preset, {"rows": "1e10"}, "auto") == {"rows": 10**10}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"reduction": "Mean"}, r"reduction=Mean: must be one of .*did you mean 'mean'"),
        ({"axis": 0}, "axis=0: must be one of none, 0, 1"),
        ({"rows": 1.5}, "rows=1.5: must be an integer"),
        ({"rows": True}, "rows=True: must be an integer"),
        ({"rows": None}, "rows=None: must be an integer"),
        ({"rows": 0}, "rows=0: must be an integer of at least 1"),
        ({"rows": [1]}, r"rows=\[1\]: must be an integer"),
        ({"seed": float("inf")}, "seed=inf: must be an integer"),
        ({"rowz": 5}, "no parameter 'rowz'.*'rows'"),
    ],
)
def test_values_given_by_python_code_are_checked_as_typed_ones_are(
    client: Client, given: dict[str, Any], said: str
) -> None:
    with pytest.raises(PresetError, match=said):
        execution.execute(client, presets.get("mean"), given, backend="numpy")


def test_numbers_of_numpy_and_texts_are_taken_from_python_code() -> None:
    given = {"rows": np.int64(5), "cols": "1e2", "tasks": None, "seed": np.float32(3)}
    found = presets.complete(presets.get("mean"), given, "numpy")
    assert [found[name] for name in given] == [5, 100, None, 3]
    assert all(type(found[name]) is int for name in ("rows", "cols", "seed"))


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
        ("lazy", r"result\['a'\]\[0\] is lazy, a Dask Array; write job.compute"),
        ("future", r"result\['a'\]\[0\] is a Future; write job.results"),
        ("odd", r"result\['a'\]\[0\] is an object; make it a number"),
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
