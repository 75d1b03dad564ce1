"""The screen on hosts without workers: whose each GPU is, and since when."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gputui.model.readings import Claim, DeviceProcess, DeviceReading, Note, Owner
from gputui.model.snapshot import ClusterState, SchedulerState, SchedulerStatus, Session, Snapshot
from gputui.protocol.frontend import AddWorkers, KeepWatching, Previewed, StartRun
from tests.tui.build import EPOCH, GIB, device, host, snapshot
from tests.tui.still import Still, press, seen, sees, sees_not, showing, until

HOUR = 3600.0


def held(number: int, user: str, note: Note, **values: Any) -> DeviceReading:
    return device(number, claim=Claim(7, user, note), **values)


def process(user: str, command: str = "python train.py", owner: Owner = Owner.OTHER) -> Any:
    return DeviceProcess(99, owner, user, command, 30 * GIB, since=EPOCH - 2 * HOUR)


def shared() -> Snapshot:
    """Four GPUs of one box: one promised, one over, one with a process, one free."""
    devices = (
        held(0, "alice", Note("training", until=EPOCH + 3 * HOUR), waiting=("bob", "carol")),
        held(1, "bob", Note("", until=EPOCH - 2 * HOUR), idle_since=EPOCH - 3 * HOUR),
        device(2, processes=(process("me"),), utilization_percent=93.0, memory_used_bytes=79 * GIB),
        device(3, idle_since=EPOCH - 60),
    )
    return replace(
        snapshot(host("h", *devices, read_at=EPOCH), wanted_workers=0),
        state=ClusterState.WATCHING,
        scheduler=SchedulerStatus(SchedulerState.NONE),
        sessions=(Session("screen", os.getpid(), "me"),),
        ends_with_screens=True,
    )


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)])
async def test_each_gpu_says_whose_it_is_and_what_was_promised(size: tuple[int, int]) -> None:
    async with Still(shared()).app.run_test(size=size) as pilot:
        await sees(pilot, "watching, no workers", "USER/CLAIM", "alice", "bob · over by", "free")
        lines = {n: next(x for x in seen(pilot).splitlines() if f"gpu{n} " in x) for n in range(4)}
        assert "in use" in lines[0] and "in use" in lines[1] and "me" in lines[2]
        assert "· free" in lines[3]
        assert "alarm" not in seen(pilot).splitlines()[0] and not {"✖", "▲"} & {*seen(pilot)}
        assert "TASK" not in seen(pilot) and "workers" not in seen(pilot).splitlines()[0][40:]


async def test_the_gpu_under_the_cursor_says_all_of_its_claim() -> None:
    async with showing(Still(shared()), "USER/CLAIM", size=(120, 40)) as pilot:
        await press(pilot, ["down"], "user   alice · training · for 3h more · waiting: bob, carol")
        await press(pilot, ["down"], "user   bob · over by 2h, idle 3h")
        await press(pilot, ["down", "enter"], "python train.py", "user   me", "since 2h")


@pytest.mark.parametrize(
    ("typed", "shown"),
    [("user:alice", "gpu0"), ("free", "gpu3"), ("idle>1h", "gpu1"), ("!free user:m*", "gpu2")],
)
async def test_gpus_are_filtered_by_user_and_idleness(typed: str, shown: str) -> None:
    async with showing(Still(shared()), "gpu0", "gpu3", size=(120, 40)) as pilot:
        await press(pilot, ["slash", *typed, "enter"], shown, "1 of 4 GPUs")


async def test_u_lists_users_and_what_they_have() -> None:
    async with showing(Still(shared()), "gpu0", size=(100, 30)) as pilot:
        await press(pilot, "u", "3 users", "1 of 4 GPUs free", "alice", "bob", "me")
        row = next(x for x in seen(pilot).splitlines() if x.strip().startswith("bob"))
        assert row.split()[:6] == ["bob", "1", "1G/80.0G", "70", "W", "3h"]
        await press(pilot, ["slash", *"user:me", "enter", "enter"], "USER/CLAIM", "python train.py")


async def test_enter_opens_what_a_filter_left_even_while_the_screen_is_paused() -> None:
    async with showing(Still(shared()), "gpu0", size=(100, 30)) as pilot:
        await press(pilot, ["u", "p"], "3 users", "PAUSED")
        await press(pilot, ["slash", *"user:me", "enter"], "1 of 3 users")
        await press(pilot, ["enter"], "gpu zoom  h:gpu2")


async def test_plus_on_free_gpus_starts_a_cluster_there() -> None:
    on = Still(shared())
    on.link.reply = Previewed(0, ("h:gpu3",), (), "")
    async with showing(on, "gpu3", size=(120, 40)) as pilot:
        await press(pilot, ["down", "plus"], "no free GPU there")
        await press(pilot, [*["down"] * 3, "space", "plus"], "Start workers on h:gpu3")
        await press(pilot, "y", then=lambda: AddWorkers(0, ("h:gpu3",)) in on.link.asked)


async def test_a_program_is_run_on_as_many_gpus_as_are_written() -> None:
    on = Still(shared())
    async with showing(on, "gpu3", size=(120, 40)) as pilot:
        await pilot.press("colon", *"exec torchrun 'my train.py'", "enter")
        wanted = (("gpus", "1"), ("arguments", "torchrun 'my train.py'"))
        here = str(Path.cwd())
        asked = StartRun(0, "exec:torchrun", wanted, cwd=here)
        await until(pilot, lambda: asked in on.link.asked)
        await pilot.press("colon", *"exec -n 3 --per gpu --cwd=/data torchrun --help", "enter")
        wanted = (("gpus", "3"), ("per", "gpu"), ("cwd", "/data"), ("arguments", "torchrun --help"))
        asked = StartRun(0, "exec:torchrun", wanted, cwd=here)
        await until(pilot, lambda: asked in on.link.asked)
        await press(pilot, ["colon", *"exec -n x true", "enter"], "write a number of GPUs")


async def test_leaving_says_that_it_ends_unless_it_is_kept() -> None:
    on = Still(shared())
    async with showing(on, "gpu3", size=(120, 40)) as pilot:
        await press(pilot, "q", "ends with its last screen unless it is kept")
        await press(pilot, "k", then=lambda: on.link.asked == [KeepWatching(0)])


async def test_a_head_that_is_kept_is_left_running_and_can_be_stopped() -> None:
    on = Still(replace(shared(), ends_with_screens=False))
    async with showing(on, "gpu3", size=(120, 40)) as pilot:
        await press(pilot, "q", "leave it running", "stop it", "comes back to it")
        await sees_not(pilot, "ends with its last screen")


async def test_hosts_say_how_many_of_their_gpus_are_free() -> None:
    other = host("i", *(device(number, "i") for number in range(4)), read_at=EPOCH)
    watching = shared()
    on = Still(replace(watching, hosts=(*watching.hosts, other)))
    async with showing(on, "FREE", "host zoom", keys=("1", "Z")) as pilot:
        await sees(pilot, "h    ● ready", "i    ● ready")
        rows = [line.split() for line in seen(pilot).splitlines() if " ready   " in line]
        assert [row[row.index("ready") + 2] for row in rows] == ["1", "4"], seen(pilot)


async def test_a_claim_of_another_shows_in_a_cluster_in_place_of_a_task() -> None:
    on = Still(snapshot(host("h", held(0, "alice", Note("training")))))
    async with showing(on, "in use", "alice · trai") as pilot:
        await sees_not(pilot, "✖")
