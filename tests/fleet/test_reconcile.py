"""What a change of what people want starts and stops."""

import time
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gputui.fleet import desired
from gputui.fleet.desired import Actual, Desired, decide, host_quotas
from gputui.model.hosts import Host
from gputui.model.plan import Changes, HostCapacity
from gputui.model.readings import DeviceReading

GIB = 2**30
GPUS = HostCapacity(
    devices=tuple(DeviceReading(f"GPU-{label}", label, "H200") for label in "0123"),
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


ONE_OF_CPUS = Actual(hosts=(Host("c"),), capacities={"c": CPUS}, running={})
FIVE_OF_CPUS = running("c:cpu0", "c:cpu3", "c:cpu1", "c:cpu2", "c:cpu4", fleet=ONE_OF_CPUS)
BOTH = Actual(hosts=(Host("a"), Host("c")), capacities={"a": GPUS, "c": CPUS}, running={})
ONE = running("a:gpu0")
LEAVING = replace(running("a:gpu1"), leaving=frozenset({"a:gpu0", "b:gpu0"}))
RETIRED = desired.retire(Desired(), ["a:gpu1"])
KEPT = desired.keep(Desired(0), ["a:gpu0"])
ALL_OF_B = "b:gpu0 b:gpu1 b:gpu2 b:gpu3"
EVERY = " ".join([*ALL_OF_A, ALL_OF_B])
DECISIONS = {
    "every GPU gets a worker": (EMPTY, Desired(), EVERY, ""),
    "no GPU worker is invented": (EMPTY, Desired(50), EVERY, ""),
    "a number is spread": (EMPTY, Desired(4), "a:gpu0 a:gpu1 b:gpu0 b:gpu1", ""),
    "those that run stay": (running("a:gpu3", "a:gpu2"), Desired(4), "b:gpu0 b:gpu1", ""),
    "the cheapest go": (running("a:gpu2", "a:gpu0", "b:gpu1"), Desired(1), "", "a:gpu2 a:gpu0"),
    "CPU workers go by worth too": (FIVE_OF_CPUS, Desired(3), "", "c:cpu0 c:cpu3"),
    "a retired one": (running(*ALL_OF_A), desired.retire(Desired(4), ["a:gpu1"]), "", "a:gpu1"),
    "it stays away": (running("a:gpu0"), RETIRED, f"a:gpu2 a:gpu3 {ALL_OF_B}", ""),
    "until it is added": (EMPTY, desired.add(RETIRED, ["a:gpu1"], {}), EVERY, ""),
    "an added one": (ONE, desired.add(Desired(1), ["b:gpu3"], ONE.running), "b:gpu3", ""),
    "a kept one is not stopped again": (ONE, KEPT, "", ""),
    "nor gives it room": (ONE, desired.add(KEPT, ["b:gpu3"], ONE.running), "b:gpu3", ""),
    "a lost one": (replace(running("b:gpu0"), capacities={"b": GPUS}), Desired(2), "b:gpu1", ""),
    "one on its way out": (LEAVING, Desired(2), "b:gpu1", ""),
    "more than usual on CPUs": (
        BOTH,
        Desired(11),
        " ".join([*ALL_OF_A, *(f"c:cpu{number}" for number in range(7))]),
        "",
    ),
}
"""What is so, what is wanted, what starts and what stops."""


@pytest.mark.parametrize(
    ("fleet", "wanted", "starting", "stopping"), DECISIONS.values(), ids=DECISIONS
)
def test_what_is_wanted_decides_what_starts_and_what_stops(
    fleet: Actual, wanted: Desired, starting: str, stopping: str
) -> None:
    assert starts(fleet, wanted) == starting.split()
    assert decide(fleet, wanted).stops == tuple(stopping.split())


def test_a_worker_that_two_frontends_retire_is_one_worker_less() -> None:
    once = desired.retire(Desired(4), ["a:gpu1"])
    assert desired.retire(once, ["a:gpu1"]) == once


def test_a_host_of_both_kinds_gives_gpu_workers_first_and_no_more_than_its_line_says() -> None:
    both = Actual((Host("a", workers=2),), {"a": GPUS}, {})
    everything = [*ALL_OF_A, "a:cpu0", "a:cpu1"]
    assert starts(both, Desired()) == starts(both, Desired(9)) == everything
    assert starts(both, Desired(5)) == everything[:5]
    assert [spec.name for spec in desired.free_slots(both)] == everything
    retired = desired.retire(Desired(), ["a:cpu0"])
    changes = decide(running(*everything, fleet=both), retired)
    assert (changes.starts, changes.stops) == ((), ("a:cpu0",))
    assert starts(running(*ALL_OF_A, "a:cpu1", fleet=both), Desired()) == ["a:cpu0"]


def test_a_decision_about_a_thousand_hosts_takes_no_seconds() -> None:
    hosts = tuple(Host(f"c{number}") for number in range(1000))
    fleet = Actual(
        hosts=hosts, capacities=dict.fromkeys((host.name for host in hosts), CPUS), running={}
    )
    there = tuple(f"{host.name}:cpu{number}" for host in hosts for number in range(1, 7))
    began = time.process_time()
    assert len(decide(running(*there, fleet=fleet), Desired(9_000)).starts) == 3_000
    assert time.process_time() - began < 2.0


loaded = settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
"""A busy machine makes values slowly, and takes long for each."""
names = st.sampled_from(["g", "h", "c", "d", "e"])
CAPACITY = {
    "g": GPUS,
    "h": replace(GPUS, devices=tuple(DeviceReading(f"H-{n}", str(n), "H200") for n in range(2))),
    "c": CPUS,
    "d": replace(CPUS, cpus=2),
    "e": replace(GPUS, devices=(DeviceReading("E-0", "0", "H200"),)),
}
HOSTS = (
    Host("g"),
    Host("h", workers_per_gpu=2),
    Host("c"),
    Host("d", workers=2),
    Host("e", workers=2),
)


@st.composite
def desires(draw: st.DrawFn) -> Desired:
    return Desired(
        workers=draw(st.none() | st.integers(0, 20)),
        held_back=frozenset(draw(st.sets(st.sampled_from(["g:gpu0", "g:gpu3", "c:cpu1"])))),
        asked=frozenset(draw(st.sets(st.sampled_from(["h:gpu1.1", "c:cpu3"])))),
    )


@st.composite
def actuals(draw: st.DrawFn) -> Actual:
    able = draw(st.sets(names, min_size=1))
    slots = [f"g:gpu{n}" for n in range(4)] + ["h:gpu0", "h:gpu1", "h:gpu0.1", "h:gpu1.1"]
    slots += [f"{host}:cpu{n}" for host in "cd" for n in range(8)]
    slots += ["e:gpu0", "e:cpu0", "e:cpu1"]
    there = draw(st.lists(st.sampled_from(slots), unique=True))
    split = draw(st.integers(0, len(there)))
    return Actual(
        hosts=HOSTS,
        capacities={name: CAPACITY[name] for name in able},
        running={name: name.partition(":")[0] for name in there[:split]},
        ranked=tuple(draw(st.permutations(there[:split]))),
        leaving=frozenset(there[split:]),
    )


def after(actual: Actual, changes: Changes) -> Actual:
    """Return the fleet once the changes came about."""
    left = {name: host for name, host in actual.running.items() if name not in changes.stops}
    there = left | {spec.name: spec.host for spec in changes.starts}
    ranked = tuple(name for name in actual.ranked if name in left)
    return replace(actual, running=there, ranked=ranked)


ADDED = st.sets(st.sampled_from(["g:gpu0", "g:gpu2", "h:gpu1.1", "c:cpu1", "c:cpu3"]), min_size=1)


@loaded
@given(actuals(), desires(), ADDED)
def test_workers_that_two_frontends_add_are_added_once(
    actual: Actual, wanted: Desired, added: set[str]
) -> None:
    once = desired.add(wanted, added, actual.running)
    assert desired.add(once, added, actual.running) == once


@loaded
@given(actuals(), desires(), ADDED)
def test_adding_workers_stops_none_that_stayed_without_them(
    actual: Actual, wanted: Desired, added: set[str]
) -> None:
    before = decide(actual, wanted).stops
    assert set(decide(actual, desired.add(wanted, added, actual.running)).stops) <= set(before)


@loaded
@given(actuals(), desires())
def test_deciding_again_changes_nothing(actual: Actual, desired: Desired) -> None:
    then = after(actual, decide(actual, desired))
    assert decide(then, desired) == Changes((), ())


@loaded
@given(actuals(), desires())
def test_no_name_is_started_twice_nor_before_it_is_free(actual: Actual, desired: Desired) -> None:
    started = [spec.name for spec in decide(actual, desired).starts]
    assert len(started) == len(set(started))
    assert not set(started) & (actual.running.keys() | actual.leaving | desired.held_back)
    assert {name.partition(":")[0] for name in started} <= actual.capacities.keys()


@loaded
@given(actuals(), desires())
def test_nothing_is_lost_that_need_not_be(actual: Actual, desired: Desired) -> None:
    """What stops is too much for its host, or too much in all; the cheapest stops first."""
    changes, quotas = decide(actual, desired), host_quotas(actual, desired)
    able = {name: host for name, host in actual.running.items() if host in actual.capacities}
    staying = Counter(host for name, host in able.items() if name not in changes.stops)
    for name in set(changes.stops) - desired.held_back:
        full = desired.workers is not None and staying.total() >= desired.workers
        assert full or staying[able[name]] >= quotas[able[name]]
    worth = {name: place for place, name in enumerate(actual.ranked)}
    places = [worth[name] for name in changes.stops]
    assert places == sorted(places)


@loaded
@given(actuals(), desires())
def test_as_many_run_as_are_wanted_or_as_there_is_room_for(
    actual: Actual, desired: Desired
) -> None:
    then = after(actual, decide(actual, desired))
    able = [name for name, host in then.running.items() if host in actual.capacities]
    quotas = host_quotas(actual, desired)
    on_hosts = Counter(name.partition(":")[0] for name in able)
    assert all(number <= quotas[host] for host, number in on_hosts.items())
    if desired.workers is not None:
        assert len(able) <= desired.workers
