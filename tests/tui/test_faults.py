"""Bad input and faults: the screen stays, says what happened, and loses nothing."""

import unicodedata
from dataclasses import replace

import pytest
from rich.cells import cell_len

from gputui import presets
from gputui.model.readings import DeviceProcess, Owner
from gputui.model.snapshot import HostState, RunState, RunStatus, Snapshot
from gputui.model.usage import Failure
from gputui.presets import Preset
from gputui.protocol.frontend import SnapshotTaken
from gputui.protocol.shared import Refused
from gputui.tui.dialogs.run import RunDialog
from tests.tui.build import EPOCH, GIB, device, host, snapshot, worker
from tests.tui.still import Still

NASTY = "\x1b[2J\x1b]0;owned\x07\x9b31mred\r\n\x00‮evil‬ 名前🚀 שלום"
"""What a terminal would obey, what turns text around, and what is two cells wide."""


def two_hosts(sequence: int = 1, second: bool = True) -> Snapshot:
    hosts = [host(name, device(0, name)) for name in ("a", "b")[: 1 + second]]
    made = snapshot(*hosts, workers=tuple(worker(0, each.name) for each in hosts))
    return replace(made, sequence=sequence, taken_at=EPOCH + sequence)


def nasty() -> Snapshot:
    theirs = DeviceProcess(9, Owner.OTHER, NASTY, NASTY, GIB)
    bad = host(NASTY, replace(device(0, NASTY, processes=(theirs,)), name=NASTY), reason=NASTY)
    refused = host("r", state=HostState.FAILED, reason=NASTY, hint=NASTY, stderr_tail=(NASTY,))
    working = replace(worker(0, NASTY), current_task=NASTY, reason=NASTY)
    run = RunStatus(
        "r-1",
        NASTY,
        ((NASTY, NASTY),),
        RunState.FAILED,
        EPOCH,
        failure=Failure(NASTY, NASTY, NASTY, (NASTY,), NASTY, (NASTY,)),
    )
    return snapshot(bad, refused, workers=(working,), runs=(run,), name=NASTY)


def obeyed(text: str) -> list[str]:
    """Return the characters that a terminal would obey, or that turn text around."""
    kinds = ("Cc", "Cf", "Cs", "Zl", "Zp")
    return [f"{char!r}" for char in text if unicodedata.category(char) in kinds and char != "\n"]


@pytest.mark.parametrize("view", "0123456")
@pytest.mark.parametrize("size", [(80, 24), (200, 60)], ids=str)
async def test_nothing_that_a_host_or_a_program_wrote_is_obeyed(
    view: str, size: tuple[int, int]
) -> None:
    async with Still(nasty()).showing(size=size) as on:
        on.link.put(SnapshotTaken(replace(nasty(), sequence=2)))
        on.log(NASTY, NASTY, "plain " + NASTY)
        on.happen(1, NASTY, NASTY, "error")
        await on.press([view], then=lambda: on.app.view and on.app.view.NAME)
        await on.pilot.press("j", "enter")
        await on.pilot.pause(0.1)
        assert not obeyed(on.text)
        lines = on.app.screen._compositor.render_strips()
        assert {cell_len(line.text) for line in lines} == {size[0]}


async def test_a_snapshot_out_of_order_is_let_be() -> None:
    async with Still(two_hosts(5)).showing("▾b") as on:
        on.link.put(SnapshotTaken(two_hosts(4, second=False)))
        on.link.put(SnapshotTaken(two_hosts(6)))
        await on.until(lambda: on.app.watched.snapshot.sequence == 6)
        await on.sees("▾b")


async def test_a_host_that_vanished_takes_its_rows_and_marks_along() -> None:
    async with Still(two_hosts(1)).showing("▾b") as on:
        await on.press(["G", "space"], "1 marked")
        on.link.put(SnapshotTaken(two_hosts(2, second=False)))
        await on.sees_not("▾b", "1 marked")
        assert on.app.view is not None and on.app.view.targets()[0].startswith("a")


@pytest.mark.parametrize("view", "0123456")
async def test_a_cluster_that_loses_every_host_is_shown_empty(view: str) -> None:
    async with Still(two_hosts(1)).showing("▾b") as on:
        await on.pilot.press(view)
        on.link.put(SnapshotTaken(replace(snapshot(), sequence=2)))
        await on.sees("hosts 0/0")
        await on.pilot.press("j", "k", "enter", "space", "escape")
        assert on.app.is_running


@pytest.mark.parametrize("view", "0123456")
async def test_three_lines_of_ten_cells_are_enough_to_stay(view: str) -> None:
    async with Still(two_hosts()).showing("a:gpu0") as on:
        await on.pilot.press(view)
        await on.pilot.resize_terminal(10, 3)
        await on.sees("lab")
        await on.pilot.press("question_mark", "escape", "ctrl+p", "escape", "colon", "escape")
        await on.pilot.resize_terminal(80, 24)
        await on.sees("0hosts 1fleet")


class Broken:
    """What a preset with a mistake does."""

    def __call__(self, *_: object) -> object:
        raise ZeroDivisionError("rows are no number")


async def test_a_preset_that_raises_while_it_is_set_up_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    good: Preset = presets.get("svd")
    monkeypatch.setattr(presets, "get", lambda name: replace(good, estimate=Broken()))
    async with Still(two_hosts()).showing("a:gpu0", size=(120, 40)) as on:
        await on.press("c", then=lambda: isinstance(on.app.screen, RunDialog))
        await on.sees("ZeroDivisionError: rows are no number")


async def test_a_preset_that_cannot_be_imported_leaves_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    get = presets.get

    def missing(name: str) -> Preset:
        if name == "svd":
            raise ImportError("no module named wings")
        return get(name)

    monkeypatch.setattr(presets, "get", missing)
    async with Still(two_hosts()).showing("a:gpu0", size=(120, 40)) as on:
        await on.press([*":run svd", "enter"], "run: no module named wings")
        await on.press(["c", "down"], "no module named wings")
        await on.press(["down"], "--run random-sum")
        await on.press(["escape", "ctrl+p", *"run mean"], "run mean")


async def test_a_long_reason_is_said_whole_on_a_narrow_terminal() -> None:
    on = Still(two_hosts())
    reason = "this cluster was started on this machine alone and listens on loopback only"
    on.link.reply = Refused(0, f"cannot add gpu-d: {reason}; start another one")
    async with on.showing("a:gpu0"):
        await on.pilot.press(*":add gpu-d", "enter")
        await on.sees("add: cannot add gpu-d", "start another one", "c run : command")
