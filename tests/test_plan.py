"""Which workers a host can run, and where each of them stands on it."""

from dataclasses import replace

from gputui.model.hosts import Host, parse_hosts
from gputui.model.plan import HostCapacity, WorkerSpec, cpus_of, usual_workers, workers_of
from gputui.model.readings import DeviceReading
from gputui.model.slots import slots_of
from gputui.model.snapshot import WorkerState, WorkerStatus
from tests.tui.build import device, host, snapshot, worker

GIB = 2**30


def gpu_host(gpus: int, memory_bytes: int = 64 * GIB) -> HostCapacity:
    devices = tuple(DeviceReading(f"GPU-{index}", str(index), "H200") for index in range(gpus))
    return HostCapacity(devices, 32, memory_bytes)


def cpu_host(cpus: int) -> HostCapacity:
    return HostCapacity((), cpus, 8 * GIB)


def workers(line: str, capacity: HostCapacity) -> list[WorkerSpec]:
    (host,) = parse_hosts(line)
    return list(workers_of(host, capacity, usual_workers(host, capacity)))


def names(line: str, capacity: HostCapacity) -> list[str]:
    return [spec.name for spec in workers(line, capacity)]


def test_every_gpu_gets_one_worker_with_one_thread_and_its_share_of_memory() -> None:
    specs = workers("a", gpu_host(4))
    assert [spec.name for spec in specs] == ["a:gpu0", "a:gpu1", "a:gpu2", "a:gpu3"]
    assert {(spec.nthreads, spec.memory_limit_bytes) for spec in specs} == {(1, 16 * GIB)}
    assert [spec.device_uuid for spec in specs] == ["GPU-0", "GPU-1", "GPU-2", "GPU-3"]


def test_two_workers_share_a_gpu_under_two_names() -> None:
    assert names("a workers-per-gpu=2", gpu_host(1)) == ["a:gpu0", "a:gpu0.1"]


def test_a_worker_on_a_mig_instance_is_named_after_it() -> None:
    mig = HostCapacity((DeviceReading("MIG-x", "0.2", "H200"),), 8, GIB)
    assert names("a", mig) == ["a:mig0.2"]


def test_a_host_without_gpus_gets_what_local_cluster_would_choose() -> None:
    specs = workers("a gpus=none", cpu_host(12))
    assert [spec.nthreads for spec in specs] == [3, 3, 3, 3]
    assert {spec.device_uuid for spec in specs} == {None}


def test_more_cpu_workers_than_usual_share_the_memory() -> None:
    specs = list(workers_of(Host("a", gpus=()), cpu_host(2), 4))
    assert [spec.name for spec in specs] == ["a:cpu0", "a:cpu1", "a:cpu2", "a:cpu3"]
    assert {spec.memory_limit_bytes for spec in specs} == {2 * GIB}


def test_cpu_workers_join_the_gpu_workers_on_the_cpus_and_memory_that_are_left() -> None:
    specs = workers("a gpus=all workers=3", gpu_host(2, memory_bytes=50 * GIB))
    assert [spec.name for spec in specs] == ["a:gpu0", "a:gpu1", "a:cpu0", "a:cpu1", "a:cpu2"]
    assert [spec.nthreads for spec in specs] == [1, 1, 10, 10, 10]
    assert [spec.device_uuid for spec in specs] == ["GPU-0", "GPU-1", None, None, None]
    assert {spec.memory_limit_bytes for spec in specs} == {10 * GIB}


def test_nthreads_is_of_the_cpu_workers_where_there_are_both_kinds() -> None:
    specs = workers("a gpus=0 workers=1 nthreads=4", gpu_host(1))
    assert [spec.nthreads for spec in specs] == [1, 4]


def pins(line: str, capacity: HostCapacity, near: dict[str, set[int]]) -> list[list[int]]:
    allowed = frozenset(range(capacity.cpus))
    return [
        sorted(cpus_of(spec, allowed, lambda uuid: frozenset(near[uuid])))
        for spec in workers(line, capacity)
    ]


def test_workers_of_both_kinds_are_pinned_apart() -> None:
    host = replace(gpu_host(2), cpus=8)
    near = {"GPU-0": {0, 1, 2, 3}, "GPU-1": {4, 5, 6, 7}}
    assert pins("a gpus=all workers=2", host, near) == [[0], [4], [1, 2, 3], [5, 6, 7]]
    roomy = pins("a gpus=all workers=2 nthreads=1", host, near)
    assert roomy == [[0, 3], [4, 5, 6, 7], [1], [2]]


def test_workers_of_both_kinds_share_the_cpus_where_there_are_too_few() -> None:
    near = {"GPU-0": {0, 1}, "GPU-1": {0, 1}}
    host = replace(gpu_host(2), cpus=2)
    assert pins("a gpus=all workers=1", host, near) == [[0, 1], [0, 1], []]


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
