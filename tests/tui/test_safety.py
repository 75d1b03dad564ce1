"""What changes the cluster is done after a look and a yes, and nothing by accident.

Dialogs stand at once, name what is lost, have a safe default.
"""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from textual.events import Key

from gputui.model.snapshot import Event, HostState, RunState, RunStatus, Session, Severity, Snapshot
from gputui.protocol.frontend import (
    AddWorkers,
    ChangeHosts,
    EventHappened,
    Previewed,
    Request,
    Restart,
    RetireWorkers,
    RetryHosts,
    Scale,
    SnapshotTaken,
    Stop,
    Stopped,
)
from gputui.protocol.shared import Refused
from gputui.tui.commands.changes import at_stake
from gputui.tui.dialogs import Dialog, Modal, ScaleDialog
from tests.tui.build import EPOCH, GIB, device, host, snapshot, worker
from tests.tui.still import Still

KEYS = {"-": "minus", ":": "colon", " ": "space"}
RUN = RunStatus(
    "svd-1", "svd", (), RunState.RUNNING, EPOCH - 75, done=41, total=100, stage="computing"
)
OTHER = Session("screen", 7, "alice", "pts/3", "10.0.0.9", EPOCH - 120)


def cluster(**values: object) -> Snapshot:
    busy = worker(0, executing=1, current_task="matmul")
    return snapshot(host("h", device(0), device(1)), workers=(busy, worker(1)), **values)


def slow() -> Still:
    """Return a screen whose head takes its time."""
    on = Still(cluster())
    on.link.answers.clear()
    on.link.reply = Previewed(0, (), ("h:gpu0",), "this and that")
    return on


def type_ahead(on: Still, keys: str) -> None:
    """Send keys faster than anything is drawn."""
    for character in keys:
        on.app.post_message(Key(KEYS.get(character, character), character))


def typed(line: str) -> list[str]:
    """Return the keys of a command's own key, or of its line and enter."""
    return ["colon", *line[1:], "enter"] if line.startswith(":") else [line]


@contextlib.asynccontextmanager
async def on_gpu(on: Still) -> AsyncIterator[Still]:
    """Show a screen whose cursor is on a GPU."""
    async with on.showing("h:gpu0", size=(100, 30)):
        await on.app.show_view("fleet", "h:gpu0")
        await on.until(lambda: on.app.view and on.app.view.targets() == ("h:gpu0",))
        yield on


async def test_a_dialog_stands_before_its_preview_has_come() -> None:
    async with on_gpu(slow()) as on:
        await on.press("x", "Retire h:gpu0", "…", "[n] no")
        on.link.answers.set()
        await on.sees("stop 1: h:gpu0", "1 task running: matmul; computed again", "this and")


async def test_two_keys_typed_together_restart_a_worker_and_copy_no_name() -> None:
    async with on_gpu(Still(cluster())) as on:
        on.app.copy_to_clipboard = on.copied.append  # type: ignore[method-assign]
        type_ahead(on, "Ry")
        await on.until(lambda: on.link.asked == [Restart(0, ("h:gpu0",))])
        assert not on.copied


async def test_three_minuses_typed_together_are_one_dialog_for_three_workers_fewer() -> None:
    async with on_gpu(slow()) as on:
        type_ahead(on, "---")
        await on.until(lambda: isinstance(on.app.screen, ScaleDialog))
        dialog = on.app.screen
        assert isinstance(dialog, ScaleDialog)
        await on.until(lambda: dialog.wanted == 0)
        assert len(on.app.screen_stack) == 2


async def test_what_is_typed_behind_the_palettes_key_is_looked_for_there() -> None:
    async with on_gpu(Still(cluster())) as on:
        on.app.post_message(Key("ctrl+p", None))
        type_ahead(on, "restart")
        await on.sees("restart", ":restart [NAME…|all]")


async def test_enter_changes_nothing_in_any_question_about_the_cluster() -> None:
    on = Still(cluster())
    on.link.reply = Previewed(0, (), ("h:gpu0",), "")
    async with on_gpu(on):
        for keys in ("x", "R", "minus", "plus", ":stop", ":scale 1"):
            await on.press([*typed(keys)], then=lambda: isinstance(on.app.screen, Dialog))
            await on.press(["enter"], then=lambda: not isinstance(on.app.screen, Modal))
        done = [each for each in on.link.asked if not getattr(each, "preview", False)]
        assert done == []
        assert {type(each) for each in on.link.asked} == {RetireWorkers, Scale}


async def test_stopping_a_cluster_that_others_use_takes_three_keys_and_names_them() -> None:
    async with on_gpu(Still(cluster(runs=(RUN,), sessions=(OTHER,)))) as on:
        await on.press("q", "run svd 41%, computing 1:15", "alice on pts/3 (ssh from 10.0.0.9)")
        await on.press("s", "Stop lab?", "This run is cancelled", "svd 41%", "alice on pts/3")
        assert on.link.asked == []
        await on.press("y", then=lambda: on.link.asked == [Stop(0)])
        on.link.put(Stopped("stopped by us"))
        await on.until(lambda: not on.app.is_running)
    assert on.app.closing_text == "lab is stopped; nothing is left of it."


async def test_a_person_who_leaves_learns_how_to_come_back() -> None:
    async with on_gpu(Still(cluster())) as on:
        await on.press(["q", "l"], then=lambda: not on.app.is_running)
    assert "gputui attach lab comes back, gputui down lab stops it" in on.app.closing_text


async def test_a_person_who_is_detached_by_a_stop_learns_by_whom_and_what_is_left() -> None:
    on = Still(cluster())
    warned = Event(1, EPOCH, Severity.WARNING, "cluster", "stopping", "b could not be told to stop")
    async with on_gpu(on):
        on.link.put(EventHappened(warned), Stopped(f"stopped by {OTHER}"))
        await on.until(lambda: not on.app.is_running)
    assert "lab ended at" in on.app.closing_text
    assert "stopped by alice on pts/3 (ssh from 10.0.0.9)" in on.app.closing_text
    assert "b could not be told to stop" in on.app.closing_text


async def test_a_change_whose_preview_is_refused_is_not_asked_about() -> None:
    on = Still(cluster())
    on.link.reply = Refused(0, "no such worker now")
    async with on_gpu(on):
        await on.press("x", "no such worker now")
        assert not isinstance(on.app.screen, Modal)
        assert on.link.asked == [replace(RetireWorkers(0, ("h:gpu0",)), preview=True)]


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


async def test_a_host_that_is_reconnecting_is_tried_again_under_the_cursor() -> None:
    on = Still(snapshot(host("c", state=HostState.RECONNECTING)))
    async with on.showing("reconnecting", size=(100, 30)):
        await on.press("r", then=lambda: RetryHosts(0, ("c",)) in on.link.asked)


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
