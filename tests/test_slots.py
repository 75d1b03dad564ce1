"""Slots: where each worker stands on its host."""

from gputui.model.slots import slots_of
from gputui.model.snapshot import WorkerState, WorkerStatus
from tests.tui.build import host, snapshot


def test_cpu_workers_stand_by_number_in_whatever_order_they_came() -> None:
    workers = tuple(WorkerStatus(f"h:cpu{n}", "h", WorkerState.IDLE) for n in (10, 2, 0, 1))
    seen = snapshot(host(), workers=workers)
    assert [slot.label for slot in slots_of(seen)] == ["cpu0", "cpu1", "cpu2", "cpu10"]
