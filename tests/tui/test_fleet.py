"""The fleet view on built snapshots: columns, zooms, marks, filters, and what is remembered."""

import csv
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gputui.model.alarms import AlarmKind
from gputui.model.readings import DeviceProcess, HostReading, Owner
from gputui.model.slots import slots_of
from gputui.model.snapshot import HostState, HostStatus, Snapshot, WorkerState, WorkerStatus
from gputui.protocol.frontend import SnapshotTaken
from gputui.tui.preferences import Preferences, load, save
from gputui.tui.rendering import Line, metrics, whole_fields
from gputui.tui.rendering.fleet import HOST_COLUMNS, Look, Row, Selection
from gputui.tui.watched import Watched
from gputui.tui.widgets import bars
from tests.tui.build import EPOCH, GIB, device, host, snapshot, texts, worker
from tests.tui.still import Step, Still


def two_hosts(**values: object) -> Snapshot:
    hosts = [host(name, device(0, name, **values), device(1, name)) for name in ("a", "b")]
    return snapshot(*hosts, workers=tuple(worker(n, on) for on in ("a", "b") for n in (0, 1)))


def on_cpus(**values: Any) -> Snapshot:
    values = {"rss_bytes": GIB, "memory_limit_bytes": 4 * GIB, "ready": 3, **values}
    names = ("h:cpu0", "h:cpu1")
    workers = tuple(WorkerStatus(name, "h", WorkerState.IDLE, **values) for name in names)
    return snapshot(host("h"), workers=workers)


def with_hosts(*hosts: HostStatus) -> Snapshot:
    """Return two hosts and others."""
    seen = two_hosts()
    return replace(seen, hosts=(*hosts, *seen.hosts))


IDLE = WorkerState.IDLE
REFUSED = host("r", state=HostState.FAILED, reason="no route")
WHY = "no GPU; no NVIDIA driver here (libnvidia-ml.so.1 was not found): install the driver"
LONG = "node-with-a-name-that-fills-half-of-a-terminal-01.example"
THEIRS = DeviceProcess(99, Owner.OTHER, "mira", "python train.py", GIB)
READ = [host(name, reading=HostReading(43.0, 10 * GIB, 16 * GIB)) for name in "ab"]
STARTING = [WorkerStatus(f"h{n}:cpu0", f"h{n}", WorkerState.WANTED) for n in range(3)]

WALKS: dict[str, tuple[Snapshot, *tuple[Step, ...]]] = {
    "the line of columns is changed, and can be left as it was": (
        two_hosts(),
        (180, 30),
        ("C", ":columns state util mem power temp"),
        ("escape", "UTIL", "PWR  °C"),
        (":columns util mem", "UTIL", "~PWR  °C"),
    ),
    "CPU workers are shown without the columns of GPUs": (
        on_cpus(),
        (80, 24),
        ("", "cpu0", "WORKER", "1.0/4.0G", "worker zoom", "2 workers on 1 host"),
        ("", "~UTIL", "~°C", "~PWR"),
    ),
    "GPUs and CPU workers are counted each": (
        snapshot(
            host("a", device(0, "a"), device(1, "a")),
            host("b"),
            workers=(WorkerStatus("b:cpu0", "b", IDLE), worker(0, "b")),
        ),
        (160, 24),
        ("1", "3 GPUs, 1 CPU worker on 2 hosts"),
        ("/a:", "2 of 3 GPUs, 0 of 1 CPU worker on 1 host"),
    ),
    "a worker whose GPU is not read is not called a CPU worker": (
        snapshot(host("h"), workers=(worker(0, cpu_percent=87.0),)),
        ("", "h:gpu0  GPU without readings", "CPU 87%", "~CPU worker"),
    ),
    "hosts of CPU workers are summed up by their CPUs": (
        snapshot(*READ, workers=tuple(WorkerStatus(f"{n}:cpu0", n, IDLE) for n in "ab")),
        ("Z", "WORKERS", "43%", "10.0/16.0G", "2 workers on 2 hosts", "~PWR", "~°C"),
    ),
    "a wide host row sums up its GPUs": (
        two_hosts(utilization_percent=50.0, power_w=330.0),
        ("Z", "GPUS", "25%", "2G/160G", "400/800W"),
    ),
    "a host without workers says whole why": (
        with_hosts(replace(REFUSED, reason=WHY, hint="for CPU workers write: …")),
        (80, 24),
        ("1", "✖ r  failed", "was not found): install the", "try: for CPU workers write: …"),
        (200, 60),
        ("1", "✖ r  failed", "was not found): install the", "try: for CPU workers write: …"),
    ),
    "other people's processes are shown with user and command": (
        snapshot(host("h", device(0, processes=(THEIRS,)))),
        (80, 24),
        ("", "gpu0", "in use", "mira: python"),
        (180, 24),
        ("", "gpu0", "in use", "mira: python", "CLOCK", "UTIL, 2 MIN"),
        ("down enter", "99", "other", "mira", "python train.py"),
    ),
    "enter on a CPU worker leads to its process and log": (
        on_cpus(pid=41),
        ("", "cpu0", "CPU, 2 MIN"),
        ("j enter", "41", "ours", "worker h:cpu0"),
        ("enter", "h:cpu0 · 0 lines"),
    ),
    "the cell under the cursor is named, and in brackets": (
        two_hosts(utilization_percent=90.0),
        ("Z Z", "heat zoom", "a:gpu0 ○ idle 90%", "a[▇▇▇]□    b ▇▇▇ □"),
        ("right", "a:gpu1 ○ idle 0%"),
    ),
    "only workers that are up are counted": (
        snapshot(
            *(host(f"h{n}") for n in range(4)),
            workers=(*STARTING, WorkerStatus("h3:cpu0", "h3", IDLE)),
        ),
        ("", "1 of 4 workers on 4 hosts"),
    ),
    "a long name and a state leave room for the error": (
        with_hosts(host(LONG, state=HostState.FAILED, reason="connection refused on port 22")),
        (80, 24),
        ("", "▾✖ failed 0s  node-with-a-name-that-f…  connection refused on port 22"),
    ),
}
"""Snapshots, and steps on each."""


@pytest.mark.parametrize("case", WALKS.values(), ids=WALKS)
async def test_a_walk_sees(case: tuple[Snapshot, *tuple[Step, ...]]) -> None:
    await Still(case[0]).walk(*case[1:])


async def test_theme_and_columns_are_remembered(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "screen.json"
    async with Still(two_hosts(), choices=path).showing("gpu0", size=(120, 30)) as on:
        await on.pilot.press(*":columns util mem", "enter", *":theme okabe-ito", "enter")
        await on.until(lambda: load(path).theme == "okabe-ito")
    async with Still(two_hosts(), choices=path).showing("gpu0", size=(120, 30)) as again:
        assert again.app.theme == "okabe-ito"
        await again.sees("UTIL", "MEM")
        await again.sees_not("PWR  °C")


@pytest.mark.parametrize("text", ['{"theme": ', "[1]", '{"forms": 1}', "\x00"])
async def test_a_broken_file_of_choices_is_as_good_as_none_and_said(
    tmp_path: Path, text: str
) -> None:
    path = tmp_path / "screen.json"
    path.write_text(text)
    on = Still(two_hosts(), choices=path)
    async with on.showing("a:gpu0", "choices not read", size=(200, 30)):
        assert on.app.preferences == Preferences()


async def test_choices_of_another_version_are_let_be(tmp_path: Path) -> None:
    path = tmp_path / "screen.json"
    save(path, Preferences("no-such-theme", ("wings", "util")))
    async with Still(two_hosts(), choices=path).showing(size=(120, 30)) as on:
        await on.sees("gpu zoom", "UTIL")


async def test_a_choice_that_cannot_be_kept_holds_for_now(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    on = Still(two_hosts(), choices=tmp_path / "file" / "screen.json")
    async with on.showing("gpu0", size=(120, 30)):
        await on.press([*":columns util", "enter"], "for this session only")


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)])
async def test_a_cpu_worker_is_drawn_with_its_host_as_a_gpu_is(size: tuple[int, int]) -> None:
    seen_by_agent = HostReading(43.0, 10 * GIB, 16 * GIB, 1.5, 2e6, 1e6)
    hosts = (host("h", reading=seen_by_agent),)
    on = Still(replace(on_cpus(cpu_percent=87.0), hosts=hosts))
    async with on.showing("cpu0", "87%", size=size):
        await on.press("j", "CPU 43%", "MEM 10.0/16.0G", "NET 2.9M/s")
        await on.sees("CPU 87%", "MEM 1G", "TASKS – run 3 ready", "2:00 ago")
        await on.sees("HOST CPU 43%", "HOST MEM 10G", "HOST NET 2.9M/s")
        await on.press("t", "10:00 ago")
        await on.press(["enter"], "HOST CPU 43%", "2:00 ago")
        await on.press("2", "HOST CPU 43%", "2 workers")


async def test_hosts_are_sorted_in_their_zoom_and_turned_around() -> None:
    hosts = [
        host(name, device(0, name), reading=HostReading(cpu_percent=cpu))
        for name, cpu in (("a", 7.0), ("b", None), ("c", 40.0))
    ]
    on = Still(snapshot(*hosts))
    names = "[abc] {2,}● ready"
    async with on.showing("gpu0", size=(100, 24)):
        await on.press(["Z", *":sort cpu", "enter"], "CPU▼", "host zoom")
        assert [each[0] for each in re.findall(names, on.text)] == ["c", "a", "b"]
        await on.press("v", "CPU▲")
        assert [each[0] for each in re.findall(names, on.text)] == ["a", "c", "b"]
        await on.press("s", "HOST MEM▼")
        await on.press([*":sort ecc", "enter"], "no column ecc; known: host, state, gpus,")


async def test_enter_on_the_line_over_gpus_leads_to_their_host() -> None:
    async with Still(two_hosts()).showing("gpu0", size=(120, 24)) as on:
        await on.press(["enter"], "hosts 2/2")
        assert on.app.view is not None and on.app.view.targets() == ("a",)


async def test_the_filters_of_the_issue_narrow_the_rows() -> None:
    async with Still(two_hosts(utilization_percent=80.0)).showing("gpu0", size=(120, 24)) as on:
        for text, count in (
            ("a: !gpu1", "1 of 4 GPUs on 1 host"),
            ("util<20", "2 of 4 GPUs on 2 hosts"),
            ("a:gpu*", "2 of 4 GPUs on 1 host"),
            ("state:idle host:b", "2 of 4 GPUs on 1 host"),
            ("!state:idle", "0 of 4 GPUs on 0 hosts"),
        ):
            await on.press(["slash", *text, "enter"], count)
            await on.pilot.press("escape")


async def test_what_is_wrong_with_a_filter_is_not_said_a_moment_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bars, "SAID_FOR_S", 3600.0)
    async with Still(two_hosts()).showing("gpu0") as on:
        await on.press(["slash", *"util<"], "util<: a number must follow")
        await on.press("9", "4 GPUs on 2 hosts  /util<9")


async def test_sorted_by_state_the_worst_comes_first() -> None:
    workers = (worker(0), worker(1, state=WorkerState.BUSY), worker(2, state=WorkerState.CRASHED))
    on = Still(snapshot(host("h", *map(device, range(4))), workers=workers))
    async with on.showing("gpu3"):
        await on.press("s", "STATE▲")
        names = re.findall(r"h:gpu\d", on.text.partition("STATE▲")[2].split("──")[0])
        assert names == ["h:gpu2", "h:gpu1", "h:gpu0", "h:gpu3"]


async def test_a_refused_host_is_found_by_a_filter() -> None:
    refused = host("r", state=HostState.FAILED, reason="no route")
    waiting = host("w", state=HostState.CONNECTING)
    seen = two_hosts()
    on = Still(replace(seen, hosts=(refused, waiting, *seen.hosts)))
    async with on.showing("gpu0", "no route", keys="1", size=(120, 24)):
        for text in ("state:failed", "host:r", "route", "!gpu !connecting"):
            await on.press(["slash", *text, "enter"], "no route", "0 of 4 GPUs on 1 host")
            await on.pilot.press("escape")
        await on.press(["slash", *"util<20", "enter"], "4 GPUs on 2 hosts")


async def test_an_alarm_is_counted_listed_and_gone_to() -> None:
    async with Still(two_hosts(ecc_errors=2)).showing("!2 alarms", size=(120, 24)) as on:
        await on.press("!", "Alarms", "ECC errors")
        await on.pilot.press("down", "enter")
        await on.until(lambda: on.app.view and on.app.view.targets() == ("b:gpu0",))


async def test_a_refused_host_has_a_cell_of_its_own() -> None:
    seen = two_hosts()
    refused = host("r", state=HostState.FAILED, reason="no route")
    async with Still(replace(seen, hosts=(*seen.hosts, refused))).showing("gpu0") as on:
        await on.press(["Z", "Z", "G"], "heat zoom", "✖")
        await on.until(lambda: on.app.view and on.app.view.targets() == ("r",))


async def test_a_sorted_table_shows_its_top_until_a_person_moves_away() -> None:
    def busy(sequence: int) -> Snapshot:
        devices = [device(n, utilization_percent=float((n + sequence) % 40)) for n in range(40)]
        workers = tuple(worker(number) for number in range(40))
        return snapshot(
            host("h", *devices), workers=workers, sequence=sequence, at=EPOCH + sequence
        )

    async with Still(busy(1)).showing("gpu0") as on:
        await on.pilot.press(*":sort util", "enter")
        table = on.app.visited["fleet"].table
        await on.until(lambda: table.cursor == "h:gpu38")
        for sequence in range(2, 12):
            on.link.put(SnapshotTaken(busy(sequence)))
        await on.until(lambda: table.cursor == "h:gpu28")
        assert table.scroll_offset.y == 0
        await on.pilot.press("j")
        on.link.put(SnapshotTaken(busy(12)))
        await on.until(lambda: table._keys[0] == "h:gpu27")
        assert table.cursor == "h:gpu27"  # where it was, not the row that is second now


async def test_the_fleet_is_saved_as_csv_and_as_text_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    devices = [device(number, utilization_percent=50.0) for number in range(40)]
    workers = tuple(worker(number) for number in range(40))
    async with Still(snapshot(host("h", *devices), workers=workers)).showing("gpu0") as on:
        await on.pilot.press(*":screenshot f.csv", "enter")
        await on.until((tmp_path / "f.csv").exists)
        await on.pilot.press(*":screenshot f.txt", "enter")
        await on.until((tmp_path / "f.txt").exists)
    rows = list(csv.DictReader((tmp_path / "f.csv").read_text().splitlines()))
    assert [row["name"] for row in rows] == [f"h:gpu{number}" for number in range(40)]
    found = {(row["state"], row["power"], row["temp"]) for row in rows}
    assert found == {("○ idle", "70.0", "40.0")}
    assert "gpu39" in (tmp_path / "f.txt").read_text()


async def test_a_view_is_saved_over_no_file_and_as_nothing_but_svg_text_or_csv(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("keep.csv").write_text("mine")
    async with Still().showing("gpu0", size=(250, 24)) as on:
        await on.press([*":screenshot keep.csv", "enter"], "keep.csv is there already")
        for name in ("x.pdf", "x"):
            await on.press([*f":screenshot {name}", "enter"], f"{name}: name a file that ends in")
        await on.press([*":screenshot x.svg", "enter"], then=Path("x.svg").exists)
    assert {path.name for path in tmp_path.iterdir()} == {"keep.csv", "x.svg"}
    assert Path("keep.csv").read_text() == "mine"


def test_a_worker_that_is_busy_at_nothing_is_no_idle_cell() -> None:
    busy = worker(0, state=WorkerState.BUSY, executing=1)
    (slot,) = slots_of(snapshot(host("h", device(0)), workers=(busy,)))
    assert Look().cell(slot) == ("▇", "heat0")


def test_alarms_beyond_the_list_of_outliers_are_counted_and_reached() -> None:
    lost = [device(number, lost=True) for number in range(20)]
    watched = Watched()
    watched.take(snapshot(host("h", *lost)))
    selection = Selection()
    selection.take(Look(watched))
    assert texts(selection.outlier_lines())[-1] == "+9 more  o reaches all"
    key, seen_keys = None, set()
    for _ in range(20):
        key = selection.outlier_after(key)
        seen_keys.add(key)
    assert len(seen_keys) == 20


@pytest.mark.parametrize("size", [(80, 24), (160, 40)])
async def test_a_gpu_at_idle_power_has_a_word_and_a_colour_of_its_own_in_rows_and_heat(
    size: tuple[int, int],
) -> None:
    power = {"utilization_percent": 100.0, "idle_power_w": 70.0, "power_limit_w": 700.0}
    cards = (device(0, power_w=100.0, **power), device(1, power_w=600.0, **power))
    at_work = tuple(worker(n, state=WorkerState.BUSY, current_task="train") for n in (0, 1))
    on = Still(snapshot(host("h", *cards), workers=at_work))
    for second in range(2, 70, 2):
        number = on.snapshot.sequence + second
        on.link.put(SnapshotTaken(replace(on.snapshot, sequence=number, taken_at=EPOCH + second)))
    async with on.showing(size=size):
        await on.sees("gpu0 ≈ idle power", "gpu1 ● busy", "h:gpu0  busy at idle power")
        await on.press(["Z", "Z"], "heat zoom", "[≈", "▇", "≈ idle power")
    first, second = slots_of(on.snapshot)
    alarms = {first.key: [AlarmKind.HANGS], second.key: [AlarmKind.ECC]}
    look = Look(Watched(by_subject=alarms))
    assert (look.cell(first), look.cell(second)) == (("≈", "accent"), ("!", "bad"))


def cells(line: Line) -> int:
    return sum(len(text) for text, _ in line)


@pytest.mark.parametrize("gpus", [1, 4, 8, 16])
def test_a_cell_of_a_host_is_as_wide_as_its_column(gpus: int) -> None:
    found = host("h", *(device(number) for number in range(gpus)))
    row = Row(found, slots_of(snapshot(found)), Look())
    for width in (8, 12, 16):
        assert {cells(column.cell(row, width)) for column in HOST_COLUMNS} == {width}


@pytest.mark.parametrize("width", [60, 80])
@pytest.mark.parametrize("metric", metrics.HEAT)
def test_a_legend_names_its_marks_whole(metric: metrics.Metric, width: int) -> None:
    shown = whole_fields(Look(metric=metric).legend(), width)
    assert cells(shown) <= width
    assert "".join(text for text, _ in shown).endswith(
        (" idle", " alarm", " broken", " silent", " idle power", " no worker", " wrong GPU")
    )
