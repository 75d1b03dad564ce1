"""What each user has, as `who --by user` prints it."""

from dataclasses import replace

from gputui.cli.hosts import sums
from gputui.model.readings import Claim, DeviceProcess, DeviceReading, Note, Owner

GIB = 2**30


def held(pid: int, user: str, gib: int) -> DeviceProcess:
    return DeviceProcess(pid, Owner.OTHER, user, "python", gib * GIB)


SHARED = DeviceReading(
    "GPU-0", "0", "H100", 80 * GIB, 41 * GIB, power_w=400.0,
    processes=(held(1, "alice", 30), held(2, "bin", 10)),
)  # fmt: skip
CLAIMED = DeviceReading(
    "GPU-1", "1", "H100", 80 * GIB, 60 * GIB, power_w=300.0, claim=Claim(3, "bin")
)
UNSEEN = DeviceReading(
    "GPU-2", "2", "H100", 80 * GIB, 40 * GIB, power_w=200.0, processes=(held(4, "alice", 10),)
)
DEVICES = [("a", SHARED), ("a", CLAIMED), ("a", UNSEEN)]


def test_memory_and_power_of_a_shared_gpu_are_counted_once() -> None:
    _, *rows = sums(DEVICES, "user", 0.0)
    assert [row[:2] + row[3:5] for row in rows] == [
        ["alice", "2", "40.8/160G", "350 W"],
        ["bin", "2", "70.2/160G", "400 W"],
        ["unknown", "1", "30.0/80.0G", "150 W"],
    ]
    (_, row) = sums(DEVICES, "host", 0.0)
    assert row[3:5] == ["141.0/240G", "900 W"]


def test_a_user_is_idle_since_they_have_the_gpu() -> None:
    claimed = replace(CLAIMED, idle_since=0.0, claim=Claim(3, "bin", Note("", since=7200.0)))
    for by, idle in (("user", "1.0 h"), ("host", "3.0 h")):
        (_, row) = sums([("a", claimed)], by, 10800.0)
        assert row[-1] == idle
    shared = replace(SHARED, idle_since=0.0, claim=Claim(3, "bin", Note("", since=9000.0)))
    _, *rows = sums([("a", shared)], "user", 7200.0)
    assert [(row[0], row[-1]) for row in rows] == [("alice", "2.0 h"), ("bin", "0.0 h")]


def test_memory_that_is_held_unseen_is_of_the_claims_holder() -> None:
    claimed = replace(UNSEEN, claim=Claim(3, "bin"))
    _, *rows = sums([("a", claimed)], "user", 0.0)
    assert [row[:1] + row[3:5] for row in rows] == [
        ["alice", "10.0/80.0G", "50 W"],
        ["bin", "30.0/80.0G", "150 W"],
    ]


def test_a_filter_of_one_user_leaves_those_who_share_their_gpus_out() -> None:
    _, *rows = sums(DEVICES[:1], "user", 0.0, ["user:bin", "idle>1h"])
    assert [row[0] for row in rows] == ["bin"]
