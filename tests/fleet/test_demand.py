"""What a demand starts and stops."""

from dataclasses import replace

from gputui.fleet import desired
from gputui.fleet.desired import Actual, Desired, decide
from gputui.hosts import Host
from gputui.plan import Changes, HostCapacity, PlannedDevice

GIB = 2**30
GPUS = HostCapacity(
    devices=tuple(PlannedDevice(f"GPU-{label}", label) for label in "0123"),
    cpus=8,
    memory_bytes=GIB,
)
CPUS = HostCapacity(devices=(), cpus=4, memory_bytes=GIB)
EMPTY = Actual(hosts=(Host("a"), Host("b")), capacities={"a": GPUS, "b": GPUS}, running={})


def running(*names: str, fleet: Actual = EMPTY) -> Actual:
    """Return the fleet with these running, the first the cheapest to give up."""
    hosts = {name: name.partition(":")[0] for name in names}
    return replace(fleet, running=hosts, ranked=names)


def starts(fleet: Actual, wanted: Desired) -> list[str]:
    return [spec.name for spec in decide(fleet, wanted).starts]


ALL_OF_A = tuple(f"a:gpu{label}" for label in "0123")


def test_without_a_number_every_gpu_gets_a_worker() -> None:
    assert len(starts(EMPTY, Desired())) == 8


def test_a_number_is_spread_over_the_hosts() -> None:
    assert starts(EMPTY, Desired(4)) == ["a:gpu0", "a:gpu1", "b:gpu0", "b:gpu1"]


def test_growing_leaves_the_running_ones_alone() -> None:
    changes = decide(running("a:gpu3", "a:gpu2"), Desired(4))
    assert [spec.name for spec in changes.starts] == ["b:gpu0", "b:gpu1"]
    assert changes.stops == ()


def test_shrinking_stops_the_cheapest_first() -> None:
    changes = decide(running("a:gpu2", "a:gpu0", "b:gpu1"), Desired(1))
    assert changes.stops == ("a:gpu2", "a:gpu0")


def test_one_retired_by_name_is_not_replaced() -> None:
    fleet = running(*ALL_OF_A)
    changes = decide(fleet, desired.retire(Desired(4), ["a:gpu1"]))
    assert (changes.starts, changes.stops) == ((), ("a:gpu1",))


def test_one_retired_by_name_stays_away_when_all_are_wanted() -> None:
    retired = desired.retire(Desired(), ["a:gpu1"])
    assert "a:gpu1" not in starts(EMPTY, retired)
    assert "a:gpu1" in starts(EMPTY, desired.add(retired, ["a:gpu1"]))


def test_one_added_by_name_is_the_one_that_starts() -> None:
    assert starts(running("a:gpu0"), desired.add(Desired(1), ["b:gpu3"])) == ["b:gpu3"]


def test_a_host_can_be_scaled_alone() -> None:
    fleet = running(*ALL_OF_A, "b:gpu0")
    wanted = desired.scale_host(Desired(), "a", 1, fleet.running)
    changes = decide(fleet, wanted)
    assert changes.stops == ("a:gpu0", "a:gpu1", "a:gpu2")
    assert [spec.name for spec in changes.starts] == ["b:gpu1", "b:gpu2", "b:gpu3"]


def test_a_host_scaled_alone_changes_the_number_in_all() -> None:
    fleet = running(*ALL_OF_A, "b:gpu0")
    changes = decide(fleet, desired.scale_host(Desired(5), "b", 3, fleet.running))
    assert [spec.name for spec in changes.starts] == ["b:gpu1", "b:gpu2"]
    assert changes.stops == ()


def test_cpu_workers_shrink_by_worth_too() -> None:
    fleet = Actual(hosts=(Host("c"),), capacities={"c": CPUS}, running={})
    fleet = running("c:cpu0", "c:cpu3", "c:cpu1", "c:cpu2", "c:cpu4", fleet=fleet)
    assert decide(fleet, Desired(3)).stops == ("c:cpu0", "c:cpu3")


def test_a_host_of_cpu_workers_gives_more_than_usual_when_asked() -> None:
    fleet = Actual(hosts=(Host("c"),), capacities={"c": CPUS}, running={})
    fleet = running("c:cpu0", "c:cpu1", "c:cpu2", "c:cpu3", fleet=fleet)
    wanted = desired.scale_host(Desired(), "c", 6, fleet.running)
    assert starts(fleet, wanted) == ["c:cpu4", "c:cpu5"]


def test_one_that_is_kept_for_what_it_holds_is_not_stopped_again() -> None:
    fleet = running("a:gpu0")
    assert decide(fleet, desired.keep(Desired(0), ["a:gpu0"])).stops == ()


def test_workers_of_a_host_that_can_run_none_now_are_left_alone() -> None:
    fleet = replace(running("a:gpu0"), capacities={"b": GPUS})
    assert decide(fleet, Desired(1)).stops == ()


def test_a_lost_worker_is_made_up_for_elsewhere() -> None:
    fleet = replace(running("b:gpu0"), capacities={"b": GPUS})
    assert starts(fleet, Desired(2)) == ["b:gpu1"]


def test_the_last_of_many_stays_when_those_before_it_have_gone() -> None:
    fleet = Actual(hosts=(Host("a"),), capacities={"a": CPUS}, running={})
    assert decide(running("a:cpu6", fleet=fleet), Desired(1)) == Changes((), ())


def test_one_on_its_way_out_is_not_started_before_it_is_gone() -> None:
    fleet = replace(running("a:gpu1"), leaving=frozenset({"a:gpu0", "b:gpu0"}))
    assert starts(fleet, Desired(2)) == ["b:gpu1"]
