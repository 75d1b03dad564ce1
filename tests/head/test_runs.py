"""Runs that a head starts, as its frontends see them."""

import os
import signal
from dataclasses import replace
from getpass import getuser
from pathlib import Path

import pytest

from gputui.model.snapshot import RunState, RunStatus
from gputui.protocol.frontend import CancelRun, ReportRun, StartRun
from gputui.runs import records
from tests.clusters import Clusters, LiveCluster
from tests.processes import nothing_left

PRESETS = """
import time
from gputui.presets import Outcome, Preset

def lasts(job):
    list(job.results(job.map(time.sleep, [600, 600])))
    return Outcome({})

endless = Preset("endless", "takes long", (), lasts)
"""


async def started(cluster: LiveCluster, preset: str, **parameters: str) -> str:
    await cluster.up(2)
    return (await cluster.request(StartRun(0, preset, tuple(parameters.items())))).text


async def ended(cluster: LiveCluster, id: str) -> RunStatus:
    """Wait until a run has ended, and return how."""
    found: list[RunStatus] = []

    def has_ended() -> object:
        found[:] = [run for run in cluster.snapshot.runs if run.id == id and run.state.ended]
        return found

    await cluster.until(has_ended)
    return found[0]


def state_of(cluster: LiveCluster, id: str) -> RunState | None:
    return next((run.state for run in cluster.snapshot.runs if run.id == id), None)


def attached(cluster: LiveCluster) -> list[int]:
    return [session.pid for session in cluster.snapshot.sessions]


@pytest.mark.slow
async def test_a_run_is_one_run_from_its_start_to_its_result(standing: LiveCluster) -> None:
    id = await started(standing, "svd", rows="2000", cols="20")
    run = await ended(standing, id)
    assert (run.id, run.state, run.parameters) == (
        id,
        RunState.DONE,
        (("rows", "2000"), ("cols", "20")),
    )
    assert "singular_values" in run.result_json
    record = next(each for each in records.recorded() if each.id == id)
    assert record.started_at == pytest.approx(run.started_at, abs=0.5)  # the import took longer
    assert [event.kind for event in standing.events if event.subject == f"run {id}"] == [
        "starting",
        "running",
        "done",
    ]
    assert records.find(id).state is RunState.DONE


async def test_a_run_says_whose_it_is_and_ends_when_cancelled_its_workers_stay(
    standing: LiveCluster, tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text(PRESETS)
    id = await started(standing, f"{tmp_path}/mine.py:endless")
    await standing.until(lambda: state_of(standing, id) is RunState.RUNNING)
    assert [run.user for run in standing.snapshot.runs if run.id == id] == [getuser()]
    await standing.until(lambda: any(worker.executing for worker in standing.workers.values()))
    await standing.until(lambda: attached(standing) == [os.getpid()])
    await standing.request(CancelRun(0, id))
    assert (await ended(standing, id)).state is RunState.CANCELLED
    assert records.find(id).state is RunState.CANCELLED


async def test_a_run_that_is_cancelled_before_its_command_hears_of_it_is_not_lost(
    standing: LiveCluster, tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text(PRESETS)
    id = await started(standing, f"{tmp_path}/mine.py:endless")
    await standing.request(CancelRun(0, id))
    assert (await ended(standing, id)).state is RunState.CANCELLED


async def test_a_run_under_way_is_known_however_many_have_ended_since(
    standing: LiveCluster,
) -> None:
    lasting = RunStatus("lasting", "mine.py", (), RunState.RUNNING, 1.0)
    short = [replace(lasting, id=f"short-{n}", state=RunState.DONE) for n in range(60)]
    for run in (lasting, *short):
        standing.link.send(ReportRun(run))
    await standing.until(lambda: state_of(standing, "short-59"))
    assert len(standing.snapshot.runs) < 60
    await standing.request(CancelRun(0, "lasting"))
    standing.link.send(ReportRun(replace(lasting, state=RunState.CANCELLED)))
    assert (await ended(standing, "lasting")).state is RunState.CANCELLED


@pytest.mark.slow
async def test_a_killed_head_takes_its_runs_along(clusters: Clusters, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(PRESETS)
    cluster = await clusters.start(name="lab", lease_s=2.0)
    await started(cluster, f"{tmp_path}/mine.py:endless")
    await cluster.until(lambda: any(worker.executing for worker in cluster.workers.values()))
    os.kill(cluster.head.pid, signal.SIGKILL)
    await nothing_left(cluster.id)


@pytest.mark.slow
async def test_runs_of_a_cluster_that_is_stopped_are_cancelled_by_that(
    clusters: Clusters, tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text(PRESETS)
    cluster = await clusters.start(name="lab")
    ids = [await started(cluster, f"{tmp_path}/mine.py:endless")]
    ids.append(await started(cluster, "exec:sleep", arguments="sleep 600"))
    await cluster.until(lambda: {state_of(cluster, id) for id in ids} == {RunState.RUNNING})
    await cluster.until(lambda: any(worker.executing for worker in cluster.workers.values()))
    os.kill(cluster.head.pid, signal.SIGTERM)
    await nothing_left(cluster.id)
    ends = [records.find(id) for id in ids]
    assert [end.state for end in ends] == [RunState.CANCELLED] * 2
    said = [end.failure.text if end.failure else "" for end in ends]
    assert [each.partition(":")[0] for each in said] == ["the cluster was stopped"] * 2
