from pathlib import Path

import pytest
from distributed import Client

from gputui import presets
from gputui.errors import RunError
from gputui.runs import execution


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
