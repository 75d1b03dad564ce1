"""The screen on hosts without workers: whose each GPU is, and since when."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gputui.model.readings import Claim, DeviceProcess, DeviceReading, Note, Owner
from gputui.model.snapshot import (
    ClusterState,
    HostState,
    SchedulerState,
    SchedulerStatus,
    Session,
    Snapshot,
)
from gputui.protocol.frontend import (
    AddWorkers,
    KeepWatching,
    Previewed,
    SnapshotTaken,
    StartRun,
    Stop,
)
from tests.tui.build import EPOCH, GIB, device, host, snapshot
from tests.tui.still import Still

HOUR = 3600.0


def held(number: int, user: str, note: Note, **values: Any) -> DeviceReading:
    return device(number, claim=Claim(7, user, note), **values)


def process(user: str, command: str = "python train.py", owner: Owner = Owner.OTHER) -> Any:
    return DeviceProcess(99, owner, user, command, 79 * GIB, since=EPOCH - 2 * HOUR)


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
    async with Still(shared()).showing(
        "watching, no workers", "USER/CLAIM", "alice", "bob · over by", "free", size=size
    ) as on:

        def rows() -> list[str]:
            lines = on.text.splitlines()
            return [next((x for x in lines if f"gpu{number} " in x), "") for number in range(4)]

        said = ("in use", "in use", "me", "· free")
        await on.until(lambda: all(text in row for text, row in zip(said, rows(), strict=True)))
        assert "alarm" not in on.text.splitlines()[0] and not {"✖", "▲"} & {*on.text}
        assert "TASK" not in on.text and "workers" not in on.text.splitlines()[0][40:]


async def test_the_gpu_under_the_cursor_says_all_of_its_claim() -> None:
    async with Still(shared()).showing("USER/CLAIM", size=(120, 40)) as on:
        await on.press(["down"], "user   alice · training · for 3h more · waiting: bob, carol")
        await on.press(["down"], "user   bob · over by 2h, idle 3h")
        await on.press(["down", "enter"], "python train.py", "user   me", "since 2h")


@pytest.mark.parametrize(
    ("typed", "shown"),
    [("user:alice", "gpu0"), ("free", "gpu3"), ("idle>1h", "gpu1"), ("!free user:m*", "gpu2")],
)
async def test_gpus_are_filtered_by_user_and_idleness(typed: str, shown: str) -> None:
    async with Still(shared()).showing("gpu0", "gpu3", size=(120, 40)) as on:
        await on.press(["slash", *typed, "enter"], shown, "1 of 4 GPUs")


async def test_u_lists_users_and_what_they_have() -> None:
    async with Still(shared()).showing("gpu0", size=(100, 30)) as on:
        await on.press("u", "3 users", "1 of 4 GPUs free", "alice", "bob", "me")
        row = next(x for x in on.text.splitlines() if x.strip().startswith("bob"))
        assert row.split()[:6] == ["bob", "1", "1G/80.0G", "70", "W", "3h"]
        await on.press(["slash", *"user:me", "enter", "enter"], "USER/CLAIM", "python train.py")


@pytest.mark.parametrize(
    ("state", "word"), [(HostState.RECONNECTING, "reconnecting"), (HostState.FAILED, "failed")]
)
async def test_gpus_of_a_host_that_does_not_answer_are_not_free(
    state: HostState, word: str
) -> None:
    there = shared()
    away = replace(there.hosts[0], state=state)
    async with Still(replace(there, hosts=(away,))).showing(word, size=(120, 30)) as on:
        await on.press("u", "3 users", "0 of 4 GPUs free")
        await on.press(["1", *["down"] * 4, "space", "plus"], "no free GPU there")


async def test_who_leaves_a_watching_screen_ends_it_for_nobody_who_came_meanwhile() -> None:
    on, now = Still(shared()), shared()
    bob = Session("screen", 4242, "bob")
    async with on.showing("gpu3", size=(120, 40)):
        await on.press("q", "ends with its last screen")
        on.link.put(SnapshotTaken(replace(now, sequence=9, sessions=(*now.sessions, bob))))
        await on.until(lambda: len(on.app.live.snapshot.sessions) == 2)
        await on.press("l", then=lambda: not on.app.is_running)
    assert Stop(0) not in on.link.asked


async def test_enter_opens_what_a_filter_left_even_while_the_screen_is_paused() -> None:
    async with Still(shared()).showing("gpu0", size=(100, 30)) as on:
        await on.press(["u", "p"], "3 users", "PAUSED")
        await on.press(["slash", *"user:me", "enter"], "1 of 3 users")
        await on.press(["enter"], "gpu zoom  h:gpu2")


async def test_plus_on_free_gpus_starts_a_cluster_there() -> None:
    on = Still(shared())
    on.link.reply = Previewed(0, ("h:gpu3",), (), "")
    async with on.showing("gpu3", size=(120, 40)):
        await on.press(["down", "plus"], "no free GPU there")
        await on.press([*["down"] * 3, "space", "plus"], "Start workers on h:gpu3")
        await on.press("y", then=lambda: AddWorkers(0, ("h:gpu3",)) in on.link.asked)


async def test_a_gpu_that_is_taken_while_the_question_is_open_gets_no_worker() -> None:
    on = Still(shared())
    on.link.reply = Previewed(0, ("h:gpu3",), (), "")
    async with on.showing("gpu3", size=(120, 40)):
        await on.press([*["down"] * 4, "space", "plus"], "Start workers on h:gpu3")
        now = shared()
        (box,) = now.hosts
        taken = (*box.devices[:3], held(3, "dave", Note("mine")))
        on.link.put(SnapshotTaken(replace(now, sequence=9, hosts=(replace(box, devices=taken),))))
        await on.until(lambda: on.text.count("dave") > 0)
        await on.press("y", "not free any more: h:gpu3")
        assert not any(isinstance(each, AddWorkers) and not each.preview for each in on.link.asked)


async def test_a_program_is_run_on_as_many_gpus_as_are_written() -> None:
    async with Still(shared()).showing("gpu3", size=(120, 40)) as on:
        await on.pilot.press("colon", *"exec torchrun 'my train.py'", "enter")
        wanted = (("gpus", "1"), ("arguments", "torchrun 'my train.py'"))
        here = str(Path.cwd())
        asked = StartRun(0, "exec:torchrun", wanted, cwd=here)
        await on.until(lambda: asked in on.link.asked)
        await on.pilot.press("colon", *"exec -n 3 --per gpu --cwd=/data torchrun --help", "enter")
        wanted = (("gpus", "3"), ("per", "gpu"), ("cwd", "/data"), ("arguments", "torchrun --help"))
        asked = StartRun(0, "exec:torchrun", wanted, cwd=here)
        await on.until(lambda: asked in on.link.asked)
        await on.press(["colon", *"exec -n x true", "enter"], "'x' is not a valid integer")


async def test_leaving_says_that_it_ends_unless_it_is_kept() -> None:
    async with Still(shared()).showing("gpu3", size=(120, 40)) as on:
        await on.press("q", "ends with its last screen unless it is kept")
        await on.press("k", then=lambda: on.link.asked == [KeepWatching(0)])


async def test_a_head_that_is_kept_is_left_running_and_can_be_stopped() -> None:
    async with Still(replace(shared(), ends_with_screens=False)).showing(
        "gpu3", size=(120, 40)
    ) as on:
        await on.press("q", "leave it running", "stop it", "comes back to it")
        await on.sees_not("ends with its last screen")


async def test_hosts_say_how_many_of_their_gpus_are_free() -> None:
    other = host("i", *(device(number, "i") for number in range(4)), read_at=EPOCH)
    watching = shared()
    async with Still(replace(watching, hosts=(*watching.hosts, other))).showing(
        "FREE", "host zoom", keys=("1", "Z")
    ) as on:
        await on.sees("h    ● ready", "i    ● ready")
        rows = [line.split() for line in on.text.splitlines() if " ready   " in line]
        assert [row[row.index("ready") + 2] for row in rows] == ["1", "4"], on.text


async def test_a_claim_of_another_shows_in_a_cluster_in_place_of_a_task() -> None:
    async with Still(snapshot(host("h", held(0, "alice", Note("training"))))).showing(
        "in use", "alice · trai"
    ) as on:
        await on.sees_not("✖")
