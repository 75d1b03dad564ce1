"""A cluster in a notebook: its runs, what a cell shows of it, and its end with the kernel's."""

import asyncio
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import gputui
from gputui import runs
from gputui.client.gpucluster import GPUCluster
from gputui.errors import PresetError, RunError
from gputui.model.snapshot import RunState
from gputui.presets import Outcome, Preset
from gputui.presets.job import Job
from tests.clusters import TWO_WORKERS


@pytest.fixture(scope="module", autouse=True)
def runtime() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory(prefix="gt-") as folder:
        patch.setenv("XDG_RUNTIME_DIR", folder)
        yield


@pytest.fixture(autouse=True)
def state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture(scope="module")
def cluster(runtime: None) -> Iterator[GPUCluster]:
    """One cluster for the tests that leave it as it was."""
    with GPUCluster(TWO_WORKERS, name="lab") as cluster:
        yield cluster


def test_a_preset_is_run_recorded_and_shown_with_its_figure_and_record(cluster: GPUCluster) -> None:
    pytest.importorskip("matplotlib")
    result = cluster.run("mean", rows=1000, cols=4)
    (record,) = runs.recorded()
    assert result.record == record
    assert (record.preset, record.state, record.hosts) == ("mean", RunState.DONE, "cluster lab")
    assert record.parameters == {"rows": 1000, "cols": 4}
    assert record.result["result"] == result.result and record.result["figure"]
    assert record.summary.startswith("mean ") and record.workers == tuple(cluster.workers)
    html = result._repr_html_()
    assert "data:image/png;base64," in html and f"gputui runs show {record.id}" in html
    assert cluster.run("mean", rows=1000, cols=4).result == result.result


def test_a_wrong_parameter_is_refused_in_words_before_anything_starts(cluster: GPUCluster) -> None:
    with pytest.raises(
        PresetError, match=r"mean: rowss=1: no such parameter \(did you mean 'rows'"
    ) as caught:
        cluster.run("mean", rowss=1)
    assert caught.value.__context__ is None  # else a notebook shows it twice
    with pytest.raises(PresetError, match="unknown preset 'men'"):
        cluster.run("men")
    assert runs.recorded() == ()


def test_a_preset_of_a_file_and_one_defined_here_are_run(
    cluster: GPUCluster, tmp_path: Path
) -> None:
    (tmp_path / "beside.py").write_text("def twice(n):\n    return 2 * n\n")
    (tmp_path / "mine.py").write_text(
        "from beside import twice\n"
        "from gputui.presets import Outcome, Parameter, Preset\n"
        "def compute(job):\n"
        "    return Outcome({'sum': sum(job.results(job.map(twice, range(job['n']))))})\n"
        "PRESET = Preset('mine', 'a test', (Parameter('n', int, 4, ''),), compute)\n"
    )
    assert cluster.run(f"{tmp_path}/mine.py:PRESET", n=5).result == {"sum": 20}

    def compute(job: Job) -> Outcome:
        return Outcome({"sum": sum(job.results(job.map(abs, [-1, -2])))})

    assert cluster.run(Preset("here", "a test", (), compute)).result == {"sum": 3}
    assert {record.preset for record in runs.recorded()} == {f"{tmp_path}/mine.py:PRESET", "here"}


def test_a_failed_run_raises_why_and_its_record_says_so(cluster: GPUCluster) -> None:
    def compute(job: Job) -> Outcome:
        return Outcome({"sum": job.results([job.submit(int, "three")])})

    with pytest.raises(RunError, match="ValueError: invalid literal"):
        cluster.run(Preset("here", "a test", (), compute))
    (record,) = runs.recorded()
    assert record.state is RunState.FAILED and "invalid literal" in record.error


@pytest.mark.slow
async def test_runs_of_an_asynchronous_cluster_are_awaited_two_at_a_time_and_cancelled() -> None:
    def wait(job: Job) -> Outcome:
        import time

        return Outcome({"slept": job.results([job.submit(time.sleep, 60)])})

    async with GPUCluster(TWO_WORKERS, asynchronous=True) as cluster:
        given: list[Any] = [cluster.run("mean", rows=rows, cols=2) for rows in (100, 200)]
        one, other = await asyncio.gather(*given)
        assert (one.parameters["rows"], other.parameters["rows"]) == (100, 200)
        waiting = asyncio.ensure_future(cluster.run(Preset("wait", "a test", (), wait)))
        async with asyncio.timeout(20):
            while not any(record.preset == "wait" for record in runs.recorded()):
                await asyncio.sleep(0.05)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        states = {record.preset: record.state for record in runs.recorded()}
        assert states == {"mean": RunState.DONE, "wait": RunState.CANCELLED}


def test_a_run_on_a_hold_of_a_cluster_leaves_it_running(cluster: GPUCluster) -> None:
    with gputui.connect("lab") as held:
        assert held.run("smoke").record in runs.recorded()
    assert cluster.run("smoke").backend == "numpy"
