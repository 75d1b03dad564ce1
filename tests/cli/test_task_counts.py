"""TaskCounts are counted from where a stage began, whatever else the cluster has had."""

import itertools
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest

from gputui.model.snapshot import RunState, RunStatus, Snapshot, TaskGroupStatus
from gputui.presets import RunProgress
from gputui.runs.progress import Progress, TaskCounts
from tests.tui.build import snapshot as built


def with_groups(**groups: dict[str, Any]) -> Snapshot:
    """Return a snapshot of a cluster with these groups of tasks."""
    there = tuple(TaskGroupStatus(name, name, **counts) for name, counts in groups.items())
    return replace(built(), groups=there)


def counts(tasks: TaskCounts, done: int = 0, futures: int = 1) -> tuple[int, int]:
    """Return the counts that are shown of a stage of so many futures."""
    shown = tasks.shown(RunProgress("adding", done, futures))
    return shown.done, shown.total


def test_a_stage_that_counts_nothing_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress()
    with patch("time.monotonic", side_effect=itertools.count(100.0, 10.0)):
        for _ in range(3):
            progress.show(RunProgress("too few free GPUs", 0, 0))
        for done in range(3):
            progress.show(RunProgress("adding", done, 9))
    said = ["too few free GPUs", *(f"adding {done}/9" for done in range(3))]
    assert capsys.readouterr().err.splitlines() == said


def test_what_was_there_before_is_not_counted() -> None:
    tasks = TaskCounts()
    tasks.looked(with_groups(old={"memory": 5}))
    tasks.looked(with_groups(old={"memory": 5}, new={"memory": 1, "waiting": 2}))
    assert counts(tasks) == (1, 3)
    tasks.begin()
    tasks.looked(with_groups(old={"memory": 5}, new={"memory": 3}, next={"processing": 2}))
    assert counts(tasks) == (0, 2)


def test_tasks_are_not_counted_while_another_run_computes_on_the_cluster() -> None:
    tasks, own, other = TaskCounts(), *(run(name) for name in ("svd", "matmul"))
    program, there = run("exec:train.py"), with_groups(new={"memory": 1, "waiting": 2})
    tasks.looked(replace(with_groups(), runs=(own,)))
    tasks.looked(replace(there, runs=(own, program)))
    assert counts(tasks) == (1, 3)
    tasks.looked(replace(there, runs=(own, other)))
    tasks.looked(replace(there, runs=(own,)))
    assert counts(tasks) == (0, 1)
    tasks.begin()
    tasks.looked(replace(with_groups(next={"processing": 2}), runs=(own,)))
    assert counts(tasks) == (0, 2)


def run(preset: str) -> RunStatus:
    """Return a run that goes on."""
    return RunStatus(preset, preset, (), RunState.RUNNING, 0.0)


def test_tasks_that_the_scheduler_has_forgotten_are_done() -> None:
    tasks = TaskCounts()
    tasks.looked(with_groups())
    tasks.looked(with_groups(a={"waiting": 4}, b={"waiting": 2}))
    tasks.looked(with_groups(b={"waiting": 1, "memory": 1}))
    assert counts(tasks) == (5, 6)


def test_of_a_single_future_the_tasks_behind_it_are_shown() -> None:
    tasks = TaskCounts()
    tasks.looked(with_groups())
    assert counts(tasks) == (0, 1)
    tasks.looked(with_groups(chunk={"memory": 3, "waiting": 7}))
    assert counts(tasks) == (3, 10)
    assert counts(tasks, done=1) == (10, 10)
    assert counts(tasks, done=1, futures=8) == (1, 8)
    assert counts(tasks, futures=0) == (3, 10), "a script has no futures that are known here"
