"""Runs that a head starts, as its frontends see them."""

import os
import signal
from pathlib import Path

from gputui.protocol.frontend import CancelRun, Done, StartRun
from gputui.run import records
from gputui.snapshot import RunState, RunStatus
from tests.clusters import Clusters, LiveCluster
from tests.processes import nothing_left

PRESETS = """
import time
from gputui.presets import Outcome, Preset

def raises(job):
    raise ZeroDivisionError("not today")

def lasts(job):
    list(job.results(job.map(time.sleep, [600, 600])))
    return Outcome({})

broken = Preset("broken", "raises while it builds", (), raises)
endless = Preset("endless", "takes long", (), lasts)
"""


def runs_of(cluster: LiveCluster) -> list[RunStatus]:
    assert cluster.snapshot
    return list(cluster.snapshot.runs)


async def started(cluster: LiveCluster, preset: str, **parameters: str) -> str:
    await cluster.up(2)
    done = await cluster.request(StartRun(0, preset, tuple(parameters.items())))
    assert isinstance(done, Done)
    return done.text


async def test_a_run_is_one_run_from_its_start_to_its_result(clusters: Clusters) -> None:
    cluster = await clusters.start(name="lab")
    id = await started(cluster, "svd", rows="2000", cols="20")
    await cluster.until(lambda: runs_of(cluster) and runs_of(cluster)[0].state.ended)
    (run,) = runs_of(cluster)
    assert (run.id, run.state, run.parameters) == (
        id,
        RunState.DONE,
        (("rows", "2000"), ("cols", "20")),
    )
    assert "singular_values" in run.result_json
    assert [event.kind for event in cluster.events if event.subject == f"run {id}"] == [
        "starting",
        "running",
        "done",
    ]
    assert records.find(id).state is RunState.DONE


async def test_a_preset_that_raises_while_it_builds_fails_its_run_alone(
    clusters: Clusters, tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text(PRESETS)
    cluster = await clusters.start(name="lab")
    await started(cluster, f"{tmp_path}/mine.py:broken")
    await cluster.until(lambda: runs_of(cluster) and runs_of(cluster)[0].state.ended)
    (run,) = runs_of(cluster)
    assert run.state is RunState.FAILED
    assert "ZeroDivisionError" in run.summary and "not today" in run.summary
    assert all(worker.state.up for worker in cluster.workers.values())


async def test_a_cancelled_run_ends_and_its_workers_stay(
    clusters: Clusters, tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text(PRESETS)
    cluster = await clusters.start(name="lab")
    id = await started(cluster, f"{tmp_path}/mine.py:endless")
    await cluster.until(lambda: any(worker.executing for worker in cluster.workers.values()))
    await cluster.request(CancelRun(0, id))
    await cluster.until(lambda: runs_of(cluster)[0].state.ended)
    assert runs_of(cluster)[0].state is RunState.CANCELLED
    assert records.find(id).state is RunState.CANCELLED


async def test_a_killed_head_takes_its_runs_along(clusters: Clusters, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(PRESETS)
    cluster = await clusters.start(name="lab", lease_s=2.0)
    await started(cluster, f"{tmp_path}/mine.py:endless")
    await cluster.until(lambda: any(worker.executing for worker in cluster.workers.values()))
    os.kill(cluster.head.pid, signal.SIGKILL)
    await nothing_left(cluster.id)
