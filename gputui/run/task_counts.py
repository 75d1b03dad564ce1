"""How far a stage is, by the tasks that the scheduler counts, where nothing else says it.

A script's computation is unknown, and a Dask collection is one future for its client.
Snapshots count all tasks on the cluster; those of the stage are in groups that are new.
"""

from collections.abc import Mapping

from gputui.snapshot import Snapshot, TaskGroupStatus


class TaskCounts:
    """Counts the tasks that a cluster has had since the stage began."""

    def __init__(self) -> None:
        self._before: frozenset[str] | None = None
        """Names of the groups that were there; None until the first snapshot."""
        self._there: Mapping[str, TaskGroupStatus] = {}
        self._totals: dict[str, int] = {}
        """Of each new group, also of one that the scheduler has forgotten since."""

    def begin(self) -> None:
        """Count from here on."""
        if self._before is not None:
            self._before = frozenset(self._there)
        self._totals = {}

    def looked(self, snapshot: Snapshot) -> None:
        """Take the counts of a snapshot."""
        self._there = {group.name: group for group in snapshot.groups}
        if self._before is None:
            self._before = frozenset(self._there)
        for name, group in self._there.items():
            if name not in self._before:
                self._totals[name] = group.total

    @property
    def counts(self) -> tuple[int, int]:
        """TaskCounts that are done, and all; (0, 0) as long as none is known."""
        left = sum(
            self._there[name].total - self._there[name].finished
            for name in self._totals
            if name in self._there
        )
        total = sum(self._totals.values())
        return total - left, total
