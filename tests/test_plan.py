"""Which workers run where."""

from gputui.hosts import Host, parse_hosts
from gputui.plan import HostCapacity, PlannedDevice, WorkerSpec, changes, plan

GIB = 2**30


def gpu_host(gpus: int, memory_bytes: int = 64 * GIB) -> HostCapacity:
    devices = tuple(PlannedDevice(f"GPU-{index}", str(index)) for index in range(gpus))
    return HostCapacity(devices, 32, memory_bytes)


def cpu_host(cpus: int) -> HostCapacity:
    return HostCapacity((), cpus, 8 * GIB)


def names(specs: tuple[WorkerSpec, ...]) -> list[str]:
    return [spec.name for spec in specs]


def test_every_gpu_gets_one_worker_with_one_thread_and_its_share_of_memory() -> None:
    specs = plan(parse_hosts("a"), {"a": gpu_host(4)})
    assert names(specs) == ["a:gpu0", "a:gpu1", "a:gpu2", "a:gpu3"]
    assert {(spec.nthreads, spec.memory_limit_bytes) for spec in specs} == {(1, 16 * GIB)}
    assert [spec.device_uuid for spec in specs] == ["GPU-0", "GPU-1", "GPU-2", "GPU-3"]
    assert specs[0].resources == {"GPU": 1.0}


def test_two_workers_share_a_gpu_under_two_names() -> None:
    specs = plan(parse_hosts("a workers-per-gpu=2 gpus=1"), {"a": gpu_host(2)})
    assert names(specs) == ["a:gpu1", "a:gpu1.1"]


def test_mig_instances_are_devices_and_their_parent_is_not() -> None:
    mig = HostCapacity(
        (PlannedDevice("GPU-0", "0", usable=False), PlannedDevice("MIG-x", "0.2")), 8, GIB
    )
    assert names(plan([Host("a")], {"a": mig})) == ["a:mig0.2"]
    assert names(plan([Host("a", gpus=("MIG-x",))], {"a": mig})) == ["a:mig0.2"]
    assert names(plan([Host("a", gpus=("0",))], {"a": mig})) == ["a:mig0.2"]


def test_a_host_without_gpus_gets_what_local_cluster_would_choose() -> None:
    specs = plan([Host("a", gpus=())], {"a": cpu_host(12)})
    assert [spec.nthreads for spec in specs] == [3, 3, 3, 3]
    assert specs[0].resources == {}


def test_fewer_workers_are_spread_over_the_hosts() -> None:
    specs = plan(parse_hosts("a,b"), {"a": gpu_host(4), "b": gpu_host(4)}, wanted=3)
    assert names(specs) == ["a:gpu0", "a:gpu1", "b:gpu0"]


def test_workers_that_run_are_kept_when_fewer_are_wanted() -> None:
    specs = plan(parse_hosts("a,b"), {"a": gpu_host(2), "b": gpu_host(2)}, 2, {"b:gpu1", "b:gpu0"})
    assert names(specs) == ["b:gpu0", "b:gpu1"]


def test_more_workers_than_gpus_are_not_invented_but_cpu_workers_are() -> None:
    assert len(plan([Host("a")], {"a": gpu_host(2)}, wanted=5)) == 2
    specs = plan([Host("a", gpus=())], {"a": cpu_host(2)}, wanted=4)
    assert names(specs) == ["a:cpu0", "a:cpu1", "a:cpu2", "a:cpu3"]
    assert {spec.memory_limit_bytes for spec in specs} == {2 * GIB}


def test_a_host_that_is_not_ready_gets_none() -> None:
    assert names(plan(parse_hosts("a,b"), {"b": gpu_host(1)})) == ["b:gpu0"]


def test_changes_start_what_is_missing_and_stop_what_is_too_many() -> None:
    specs = plan([Host("a")], {"a": gpu_host(2)})
    result = changes(specs, ["a:gpu1", "old:gpu0"])
    assert [spec.name for spec in result.starts] == ["a:gpu0"]
    assert result.stops == ("old:gpu0",)
