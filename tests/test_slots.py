"""Slots: where each worker stands on its host."""

from gputui.model.slots import slots_of
from gputui.model.snapshot import WorkerState, WorkerStatus
from tests.tui.build import device, host, snapshot, worker


def test_cpu_workers_stand_by_number_in_whatever_order_they_came() -> None:
    workers = tuple(WorkerStatus(f"h:cpu{n}", "h", WorkerState.IDLE) for n in (10, 2, 0, 1))
    seen = snapshot(host(), workers=workers)
    assert [slot.label for slot in slots_of(seen)] == ["cpu0", "cpu1", "cpu2", "cpu10"]


def test_cpu_workers_stand_below_the_gpus_of_their_host() -> None:
    seen = snapshot(
        host("h", device()), workers=(WorkerStatus("h:cpu0", "h", WorkerState.IDLE), worker())
    )
    assert [(slot.label, len(slot.workers)) for slot in slots_of(seen)] == [
        ("gpu0", 1),
        ("cpu0", 1),
    ]
