"""What each command that changes the cluster asks of the head, after a look and a yes."""

from dataclasses import replace

import pytest

from gputui.model.snapshot import HostState, Snapshot
from gputui.protocol.frontend import (
    AddWorkers,
    ChangeHosts,
    Previewed,
    Request,
    Restart,
    RetireWorkers,
    RetryHosts,
    Scale,
    SnapshotTaken,
)
from gputui.tui.commands.changes import at_stake
from gputui.tui.dialogs import Dialog
from tests.tui.build import GIB, device, host, snapshot, worker
from tests.tui.still import Still


def hosts() -> Snapshot:
    """Return two workers on `a`, one and a free GPU on `b`, and a host that was refused."""
    return snapshot(
        host("a", device(0, "a"), device(1, "a")),
        host("b", device(0, "b"), device(1, "b")),
        host("r", state=HostState.FAILED, reason="no route"),
        workers=(worker(0, "a"), worker(1, "a", executing=1, in_memory=2), worker(0, "b")),
    )


@pytest.mark.parametrize(
    ("line", "title", "request_"),
    [
        ("scale 2", "Scale the cluster to 2", Scale(0, 2)),
        ("scale max", "Scale the cluster to max", Scale(0, None)),
        ("retire b", "Retire b:gpu0", RetireWorkers(0, ("b:gpu0",))),
        ("start b", "Start workers on b:gpu1", AddWorkers(0, ("b:gpu1",))),
        ("restart a:gpu1", "Restart a:gpu1?", Restart(0, ("a:gpu1",))),
        ("restart a b", "Restart a ×2, b?", Restart(0, ("a:gpu0", "a:gpu1", "b:gpu0"))),
        ("restart all", "Restart all workers?", Restart(0, ())),
        ("add c gpus=0; d", "Add c gpus=0; d", ChangeHosts(0, "c gpus=0\nd")),
        ("remove a, b", "Remove a, b", ChangeHosts(0, remove=("a", "b"))),
    ],
)
async def test_a_change_is_shown_and_asked_of_the_head_after_a_yes(
    line: str, title: str, request_: Request
) -> None:
    on = Still(hosts())
    on.link.reply = Previewed(0, (), (), "this and that")
    async with on.showing("a:gpu0", size=(100, 30)):
        await on.press(["colon", *line, "enter"], title)
        assert request_ not in on.link.asked
        await on.press("y", then=lambda: request_ in on.link.asked)


@pytest.mark.parametrize(
    ("line", "request_"), [("retry r", RetryHosts(0, ("r",))), ("retry", RetryHosts(0))]
)
async def test_what_ends_nothing_is_done_at_once(line: str, request_: Request) -> None:
    async with Still(hosts()).showing("a:gpu0", size=(100, 30)) as on:
        await on.press(["colon", *line, "enter"], then=lambda: request_ in on.link.asked)


async def test_keys_work_on_what_is_marked() -> None:
    on = Still(hosts())
    on.link.reply = Previewed(0, (), (), "this and that")
    async with on.showing("a:gpu0", size=(100, 30)):
        await on.press(["j", "space", "j", "j", "space"], "2 marked")
        for key, asked in (
            ("x", RetireWorkers(0, ("a:gpu0", "b:gpu0"))),
            ("R", Restart(0, ("a:gpu0", "b:gpu0"))),
        ):
            await on.press([key], then=lambda: isinstance(on.app.screen, Dialog))
            await on.press("y", then=lambda asked=asked: asked in on.link.asked)


async def test_one_worker_less_is_one_less_than_desired_once_that_is_a_number() -> None:
    coming = replace(hosts(), hosts=(*hosts().hosts, host("c", state=HostState.CONNECTING)))
    on = Still(coming)
    on.link.reply = Previewed(0, (), (), "this and that")
    async with on.showing("hosts 2/4", size=(100, 30)):
        for key in ("minus", "plus"):
            await on.press([key], "how many workers the hosts give is not known yet", ":scale N")
            await on.pilot.press("escape")
        on.link.put(SnapshotTaken(replace(coming, sequence=2, wanted_workers=8)))
        await on.until(lambda: on.app.watched.snapshot.wanted_workers == 8)
        await on.press(["minus"], "7 workers   (+ -")


async def test_a_mistyped_command_is_answered_with_what_may_be_meant() -> None:
    async with Still(hosts()).showing("a:gpu0", size=(100, 30)) as on:
        for line, *told in (
            ("sclae 3", "no command 'sclae'; did you mean scale?"),
            ("xyzzy", "no command 'xyzzy'; ^p finds one"),
        ):
            await on.press(["colon", *line, "enter"], *told)


def test_what_a_restart_loses_is_told() -> None:
    workers = worker(0, executing=1), worker(1, in_memory=3, managed_bytes=2 * GIB), worker(2)
    all_, one = at_stake(workers, ()), at_stake(workers, ("h:gpu0",))
    assert one.startswith("1 worker: 1 task computing, 0 results held;")
    assert all_.startswith("3 workers: 1 task computing, 3 results held (2G);")
    assert at_stake(workers, ("h:gpu2",)) == "1 worker: nothing computing, nothing held"
