"""TaskCounts are counted from where a stage began, whatever else the cluster has had."""

from dataclasses import replace
from typing import Any

from gputui.model.snapshot import Snapshot, TaskGroupStatus
from gputui.runs.execution import RunProgress
from gputui.runs.preset_run import StageCounts
from gputui.runs.progress import TaskCounts
from tests.tui.build import snapshot as built


def with_groups(**groups: dict[str, Any]) -> Snapshot:
    """Return a snapshot of a cluster with these groups of tasks."""
    there = tuple(TaskGroupStatus(name, name, **counts) for name, counts in groups.items())
    return replace(built(), groups=there)


def test_what_was_there_before_is_not_counted() -> None:
    tasks = TaskCounts()
    tasks.looked(with_groups(old={"memory": 5}))
    tasks.looked(with_groups(old={"memory": 5}, new={"memory": 1, "waiting": 2}))
    assert tasks.counts == (1, 3)
    tasks.begin()
    tasks.looked(with_groups(old={"memory": 5}, new={"memory": 3}, next={"processing": 2}))
    assert tasks.counts == (0, 2)


def test_tasks_that_the_scheduler_has_forgotten_are_done() -> None:
    tasks = TaskCounts()
    tasks.looked(with_groups())
    tasks.looked(with_groups(a={"waiting": 4}, b={"waiting": 2}))
    tasks.looked(with_groups(b={"waiting": 1, "memory": 1}))
    assert tasks.counts == (5, 6)


def test_of_a_single_future_the_tasks_behind_it_are_shown() -> None:
    stages = StageCounts()
    stages.tasks.looked(with_groups())
    assert stages.shown(RunProgress("adding", 0, 1)).total == 1
    stages.tasks.looked(with_groups(chunk={"memory": 3, "waiting": 7}))
    shown = stages.shown(RunProgress("adding", 0, 1))
    assert (shown.done, shown.total) == (3, 10)
    shown = stages.shown(RunProgress("adding", 1, 1))
    assert (shown.done, shown.total) == (10, 10)
    shown = stages.shown(RunProgress("adding", 1, 8))
    assert (shown.done, shown.total) == (1, 8)
