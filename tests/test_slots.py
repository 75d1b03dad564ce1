"""Slots: where each worker stands on its host."""

from gputui.slots import slots_of
from gputui.snapshot import (
    ClusterState,
    HostState,
    HostStatus,
    SchedulerState,
    SchedulerStatus,
    Snapshot,
    WorkerState,
    WorkerStatus,
)


def test_cpu_workers_stand_by_number_in_whatever_order_they_came() -> None:
    workers = tuple(WorkerStatus(f"h:cpu{n}", "h", WorkerState.IDLE) for n in (10, 2, 0, 1))
    seen = Snapshot(
        sequence=1,
        taken_at=0.0,
        name="lab",
        state=ClusterState.RUNNING,
        started_at=0.0,
        scheduler=SchedulerStatus(SchedulerState.RUNNING),
        hosts=(HostStatus("h", HostState.READY, 0.0),),
        workers=workers,
    )
    assert [slot.label for slot in slots_of(seen)] == ["cpu0", "cpu1", "cpu2", "cpu10"]
