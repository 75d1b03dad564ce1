"""What a run took: its recorder, fed with snapshots made by hand."""

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gputui import runs
from gputui.cli import run_command
from gputui.cli.listing import diff_runs, list_runs, show_run
from gputui.errors import UsageError
from gputui.model.readings import DeviceReading, HostReading
from gputui.model.snapshot import (
    RunState,
    SchedulerState,
    SchedulerStatus,
    Snapshot,
    TaskGroupStatus,
    TaskSpan,
    WorkerState,
)
from gputui.model.usage import Idle, PrefixUsage, Usage, Way
from gputui.runs import records
from gputui.runs.recorder import FlightRecorder
from gputui.runs.telemetry import chrome_trace
from gputui.runs.text import usage_facts
from tests.disk import files_of_at_most
from tests.tui.build import EPOCH, GIB, device, host, snapshot, worker

MOST_BYTES = 2_000_000


def cluster(at_s: float, *devices: DeviceReading, **values: Any) -> Snapshot:
    """Return a host with these GPUs after some seconds, with a worker on each."""
    devices = devices or (device(),)
    workers = tuple(worker(int(each.label), rss_bytes=2 * GIB) for each in devices)
    values.setdefault("workers", workers)
    return snapshot(host("h", *devices), at=EPOCH + at_s, **values)


def usage(recorder: FlightRecorder) -> Usage:
    found = recorder.usage
    assert found is not None
    return found


def seen(*snapshots: Snapshot, uuids: Any = None) -> Usage:
    recorder = FlightRecorder(uuids)
    for each in snapshots:
        recorder.look(each)
    return usage(recorder)


def test_the_peak_and_the_mean_of_memory_are_over_time() -> None:
    full = device(memory_used_bytes=70 * GIB, utilization_percent=90.0)
    found = seen(cluster(0), cluster(9), cluster(10, full))
    assert found.device_memory_peak_bytes == 70 * GIB
    assert found.device_memory_mean_bytes == round((9 * 1 + 70) / 10 * GIB)
    assert (found.utilization_percent, found.host_memory_peak_bytes) == (9.0, 2 * GIB)
    assert (found.gpus, found.gpu_hours) == (1, round(10 / 3600, 6))


def test_energy_is_the_counter_where_it_is_fresh_and_the_power_before_and_after() -> None:
    def at(second: int, counter_j: float) -> Snapshot:
        return cluster(second, device(power_w=100.0, energy_j=counter_j))

    # The counter is read at 3 s and 13 s; it says 300 W in between, and power 100 W.
    stale = [at(second, 5_000.0) for second in range(3)]
    fresh = [at(second, 6_000.0) for second in range(3, 13)]
    last = [at(second, 9_000.0) for second in range(13, 16)]
    found = seen(*stale, *fresh, *last)
    assert found.energy_wh == pytest.approx((3 * 100 + 3_000 + 2 * 100) / 3600, abs=1e-3)


def test_a_reading_holds_for_the_time_before_it_was_read_and_the_last_until_the_end() -> None:
    def at(second: int, power_w: float, late_s: float | None = 0.9) -> Snapshot:
        read_at = None if late_s is None else EPOCH + second - late_s
        here = host("h", device(power_w=power_w), read_at=read_at)
        return snapshot(here, workers=(worker(),), at=EPOCH + second)

    found = seen(at(0, 100), at(1, 100), at(2, 600), at(3, 600), at(5, 600, late_s=None))
    assert found.gpu_hours == round(5 / 3600, 6)
    assert found.energy_wh == pytest.approx((0.1 * 100 + 4.9 * 600) / 3600, abs=1e-3)


@pytest.mark.parametrize(
    ("read", "counted_s"),
    [
        ([(0, 0), (1, 1), *((n, 1) for n in range(2, 90)), (90, 89), (91, 91)], 3),
        ([(0, 0), (5, 5), (-5_000, 5), (-4_999, -4_999), (-4_998, -4_998)], 7),
    ],
    ids=["its host was silent", "the clock was put back"],
)
def test_a_gpu_counts_for_the_time_that_it_was_read(
    read: list[tuple[int, int]], counted_s: int
) -> None:
    found = seen(
        *(
            snapshot(
                host("h", device(), read_at=EPOCH + read_at), workers=(worker(),), at=EPOCH + at
            )
            for at, read_at in read
        )
    )
    assert found.gpu_hours == round(counted_s / 3600, 6)


def test_a_counter_that_begins_again_with_the_driver_takes_no_energy_away() -> None:
    counters = (5_000.0, 6_000.0, 10.0, 1_010.0)
    found = seen(*(cluster(n, device(power_w=100.0, energy_j=c)) for n, c in enumerate(counters)))
    assert found.energy_wh == pytest.approx((100 + 100 + 1_000) / 3600, abs=1e-3)


def test_a_gpu_without_power_and_counter_has_no_energy() -> None:
    nothing = device(power_w=None, utilization_percent=None, memory_used_bytes=None)
    found = seen(cluster(0, nothing), cluster(1, nothing))
    assert (found.energy_wh, found.utilization_percent, found.device_memory_peak_bytes) == (
        None, None, None,
    )  # fmt: skip


def test_a_gpu_counts_from_when_it_was_the_runs() -> None:
    recorder = FlightRecorder(())
    recorder.look(cluster(0))
    recorder.uuids = {"GPU-h-0"}
    recorder.look(cluster(10))
    recorder.look(cluster(14))
    found = usage(recorder)
    assert (found.gpu_hours, found.idle_s) == (round(4 / 3600, 6), 4.0)
    assert found.energy_wh == pytest.approx(70 * 4 / 3600, abs=1e-3)


def test_only_the_gpus_of_the_run_count() -> None:
    both = cluster(0, device(0), device(1)), cluster(2, device(0), device(1))
    assert seen(*both, uuids={"GPU-h-1"}).devices[0].name == "h:gpu1"
    assert [each.name for each in seen(*both).devices] == ["h:gpu0", "h:gpu1"]
    of_one = [replace(each, workers=each.workers[:1]) for each in both]
    assert [each.name for each in seen(*of_one).devices] == ["h:gpu0"]


GROUP = TaskGroupStatus("x-1", "x", waiting=3)
BUSY = SchedulerStatus(SchedulerState.BUSY)


@pytest.mark.parametrize(
    ("why", "values"),
    [
        (Idle.NO_WORK, {}),
        (Idle.CPU, {"workers": (worker(executing=1),)}),
        (Idle.DATA, {"workers": (worker(executing=0, ready=2),)}),
        (Idle.SCHEDULER, {"scheduler": BUSY}),
        (Idle.SCHEDULER, {"queued": 4}),
        (Idle.PAUSED, {"workers": (worker(state=WorkerState.PAUSED),)}),
        (Idle.NO_WORKER, {"workers": (worker(state=WorkerState.CRASHED),)}),
        (Idle.DATA, {"workers": (worker(executing=1, fetching=True),)}),
        (Idle.UNKNOWN, {"groups": (GROUP,)}),
        (Idle.TASKS, {"groups": (GROUP,), "workers": (worker(), worker(1, executing=1))}),
    ],
)
def test_an_idle_gpu_says_why_as_far_as_that_is_known(why: Idle, values: dict[str, Any]) -> None:
    found = seen(cluster(0, **values), cluster(4, **values))
    assert (found.idle_s, found.idle_why) == (4.0, ((why, 4.0),))
    assert found.devices[0].idle_why == ((why, 4.0),)


def test_a_busy_gpu_is_not_idle() -> None:
    busy = device(utilization_percent=5.0)
    assert seen(cluster(0, busy), cluster(4, busy)).idle_s == 0.0


def test_a_clock_that_jumps_counts_for_nothing() -> None:
    found = seen(cluster(0), cluster(1), cluster(-5_000), cluster(-4_999), cluster(90_000))
    assert found.watched_s == 2.0


def test_bytes_are_counted_by_way() -> None:
    over = tuple(device(n, nvlink_bytes_per_s=1e9) for n in range(2))
    net = HostReading(network_receive_bytes_per_s=3e6)
    at = [replace(cluster(n, *over), hosts=(host("h", *over, reading=net),)) for n in (0, 10)]
    found = seen(*at)
    assert (found.nvlink_bytes, found.network_bytes) == (10_000_000_000, 30_000_000)


def test_what_workers_sent_each_other_counts_from_the_runs_beginning() -> None:
    def at(second: int, **by_worker: tuple[tuple[Way, int], ...]) -> Snapshot:
        here = [worker(int(name[1:]), moved=moved) for name, moved in by_worker.items()]
        return cluster(second, workers=tuple(here))

    device_ipc, tls = Way.DEVICE, Way.CONNECTION
    found = seen(
        at(0, w0=((device_ipc, 100), (tls, 5))),
        at(1, w0=((device_ipc, 130), (tls, 5)), w1=((device_ipc, 40),)),
        at(2, w0=(), w1=((device_ipc, 50),)),
        at(3, w0=((device_ipc, 2), (tls, 15)), w1=((device_ipc, 50),)),
    )
    assert dict(found.moved) == {device_ipc: 30 + 2 + 50, tls: 10}
    assert found.moved[0][0] is device_ipc
    assert "CUDA IPC 82 B, TLS 10 B between workers" in usage_facts(found)["moved"]


def test_the_slowest_prefixes_are_of_tasks_that_ran_during_it_also_where_none_are_left() -> None:
    before = (PrefixUsage("a", 10, 100.0, 0.0), PrefixUsage("c", 10, 900.0, 0.0))
    during = (PrefixUsage("a", 12, 103.0, 0.0), PrefixUsage("b", 5, 10.0, 0.0))
    found = seen(cluster(0, prefixes=before), cluster(1, prefixes=during), cluster(2))
    assert [(each.prefix, each.tasks, each.compute_s) for each in found.slowest] == [
        ("b", 5, 10.0), ("a", 2, 3.0),
    ]  # fmt: skip


def test_a_short_run_s_slowest_prefix_has_a_figure_and_one_task_is_one() -> None:
    used = Usage(1.0, slowest=(PrefixUsage("factor", 1, 0.01234, 0.0),))
    assert usage_facts(used)["slowest"] == "factor 12.3 ms in 1 task"


def long_run(recorder: FlightRecorder, seconds: int, gpus: int) -> bytes:
    spans = tuple(
        TaskSpan(f"host-{n}:gpu{n}", f"prefix-{n}", EPOCH + 0.123456, 1234.567891) for n in range(8)
    )
    workers = tuple(worker(n) for n in range(gpus))
    used = {"utilization_percent": 100.0, "power_w": 699.0}
    kinds = [
        cluster(
            0,
            *(device(n, memory_used_bytes=gib * GIB, **used) for n in range(gpus)),
            spans=spans,
            workers=workers,
        )
        for gib in range(80)
    ]
    for second in range(seconds):
        recorder.look(replace(kinds[second % 80], taken_at=EPOCH + second))
    return msgspec.json.encode(recorder.telemetry)


@pytest.mark.parametrize(("seconds", "gpus"), [(12_000, 8), (50_000, 1)])
def test_a_long_run_is_thinned_out_and_keeps_its_peaks(
    seconds: int, gpus: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gputui.runs.recorder.MOST_ROWS", 8_000)
    monkeypatch.setattr("gputui.runs.recorder.MOST_SPANS", 1_200)
    recorder = FlightRecorder()
    written = long_run(recorder, seconds, gpus)
    assert MOST_BYTES / 50 < len(written) < MOST_BYTES / 10
    told = json.loads(written)
    assert told["times"][-1] - told["times"][0] > 0.95 * seconds
    assert max(row[1] for row in told["devices"][0]["rows"]) == 79 * 1024
    assert usage(recorder).device_memory_peak_bytes == 79 * GIB
    assert len(told["spans"]) <= 1_200 < told["one_span_of"] * 1_200


@pytest.mark.long
def test_a_run_of_a_week_takes_two_megabytes() -> None:
    assert len(long_run(FlightRecorder(), 604_800, 8)) < MOST_BYTES


def test_a_gpu_that_comes_later_has_no_earlier_rows() -> None:
    recorder = FlightRecorder()
    for at_s in range(5):
        recorder.look(cluster(at_s, *(device(n) for n in range(1 + at_s // 3))))
    first, later = recorder.telemetry.devices
    assert later.rows == [None, None, None, *first.rows[3:]]


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record two runs, the second of which used 70 GiB; return their ids."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    found = []
    for rows, used in ((10, 1), (20, 70)):
        record = runs.new_record(
            "svd", {"rows": rows, "k": 3}, backend="auto", hosts="h", version="1"
        )
        recording = runs.Recording(record, pytest.fail)
        recorder = FlightRecorder()
        busy = device(memory_used_bytes=used * GIB, utilization_percent=50.0)
        for at_s in range(3):
            recorder.look(cluster(at_s, busy, device(1)))
        recording.took(recorder.usage, recorder.telemetry)
        recording.end(RunState.DONE, result={"result": {"sum": 1}})
        found.append(record.id)
    return found


def test_a_run_is_read_again_with_what_it_took(recorded: list[str]) -> None:
    found = records.find(recorded[1])
    assert found.usage is not None and found.usage.devices[0].memory_peak_bytes == 70 * GIB
    status = records.status_of(found)
    assert status.usage == found.usage
    telemetry = json.loads((found.folder / "telemetry.json").read_bytes())
    assert telemetry["devices"][0]["rows"][0] == [50, 70 * 1024, 70]


def test_a_large_runs_gpus_stay_on_the_disk(recorded: list[str]) -> None:
    record = records.find(recorded[1])
    assert record.usage is not None
    many = replace(record.usage, devices=record.usage.devices * 100)
    status = records.status_of(replace(record, usage=many))
    assert status.usage is not None and (status.usage.gpus, status.usage.devices) == (2, ())


Capture = pytest.CaptureFixture[str]


def test_the_run_that_used_so_much_memory_is_found_in_the_list(
    recorded: list[str], capsys: Capture
) -> None:
    list_runs(as_json=False)
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "70 GiB" in line]
    assert line.startswith(recorded[1])


def test_a_run_shows_what_it_and_each_of_its_gpus_took(
    recorded: list[str], capsys: Capture
) -> None:
    show_run(recorded[1], as_json=False)
    shown = capsys.readouterr().out
    assert "70 GiB at most on one GPU, 35.5 GiB on average" in shown
    assert "2 s of all GPUs together: no work 2 s" in shown
    assert [line.split()[:3] for line in shown.splitlines() if line.startswith("h:gpu")] == [
        ["h:gpu0", "70", "GiB"], ["h:gpu1", "1", "GiB"],
    ]  # fmt: skip
    show_run(recorded[1], as_json=True)
    assert json.loads(capsys.readouterr().out)["usage"]["gpus"] == 2


def test_a_recorded_run_is_traced_later_and_a_trace_that_was_there_stays_whole(
    recorded: list[str], tmp_path: Path, capsys: Capture
) -> None:
    assert run_command(["runs", "show", recorded[1], "--trace", str(tmp_path / "t.json")]) == 0
    text = (tmp_path / "t.json").read_text()
    events = json.loads(text)["traceEvents"]
    assert [each["args"] for each in events if each["name"] == "gpu0 memory"] == [
        {"MiB": 70 * 1024}
    ] * 3
    (tmp_path / "link.json").symlink_to(tmp_path / "t.json")
    with files_of_at_most(100):
        assert run_command(["runs", recorded[1], "--trace", str(tmp_path / "link.json")]) == 1
    assert "--trace" in (said := capsys.readouterr().err) and "File too large" in said
    assert (tmp_path / "t.json").read_text() == text


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (None, "no telemetry was recorded"),
        (b"", "cannot be read"),
        (b'{"version": 1, "names": [], "spans": [[0]]}', "cannot be read"),
        (b'{"version": 1, "step_s": 1.0, "times": [1.0,', "cannot be read"),
        (b'{"version": 9}', "of another version"),
        (b"[]", "cannot be read"),
        ("telemetry.json", r"cannot be read: .*symbolic links"),
    ],
)
def test_telemetry_that_is_missing_broken_or_newer_is_said_to_be_so(
    recorded: list[str], found: bytes | str | None, says: str, tmp_path: Path
) -> None:
    file = records.find(recorded[0]).folder / "telemetry.json"
    file.unlink()
    if isinstance(found, str):
        file.symlink_to(found)
    elif found is not None:
        file.write_bytes(found)
    with pytest.raises(UsageError, match=says):
        show_run(recorded[0], False, str(tmp_path / "t.json"))


def test_what_differs_between_two_runs_comes_first(recorded: list[str], capsys: Capture) -> None:
    diff_runs(*recorded, as_json=False)
    shown, _, alike = capsys.readouterr().out.partition("\n\nalike: ")
    named = [line.split()[0] for line in shown.splitlines()]
    assert named[0] == "run" and set(named) >= {"rows", "device"} and "preset" not in named
    assert "70 GiB at most" in shown and "k" in alike.split(", ")
    diff_runs(*recorded, as_json=True)
    found = json.loads(capsys.readouterr().out)
    flags = [each["differs"] for each in found[3:]]
    assert flags == sorted(flags, reverse=True)
    assert {"name": "rows", "first": "10", "second": "20", "differs": True} in found


def events_of(trace: bytes) -> list[dict[str, Any]]:
    """Return a trace's events, all as the Trace Event Format has them."""
    events: list[dict[str, Any]] = json.loads(trace)["traceEvents"]
    threads: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for event in events:
        assert isinstance(event["name"], str) and isinstance(event["pid"], int)
        match event["ph"]:
            case "X":
                assert isinstance(event["ts"], int) and event["dur"] >= 0
                spans = threads.setdefault((event["pid"], event["tid"]), [])
                spans.append((event["ts"], event["ts"] + event["dur"]))
            case "C":
                assert isinstance(event["ts"], int) and event["args"]
                assert all(isinstance(value, int | float) for value in event["args"].values())
            case kind:
                assert (kind, event["name"]) in (("M", "process_name"), ("M", "thread_name"))
                assert isinstance(event["args"]["name"], str)
    for spans in threads.values():
        spans.sort()
        after = [end <= begin for (_, end), (begin, _) in pairwise(spans)]
        assert all(after), "two at a time on one thread"
    return events


def test_a_trace_has_each_task_once_and_the_gpus_readings_as_counters() -> None:
    recorder = FlightRecorder()
    at = (EPOCH, 2.0), (EPOCH + 1, 2.0), (EPOCH + 3.5, 1.0)
    spans = tuple(TaskSpan("h:gpu0", "wörk", *each, erred=each[1] == 1.0) for each in at)
    recorder.look(cluster(0, device(utilization_percent=50.0), spans=spans))
    recorder.look(cluster(1))
    record = runs.new_record("svd", {}, backend="auto", hosts="h", version="1")
    record = replace(record, started_at=EPOCH, timings={"computing": 4.0})
    events = events_of(chrome_trace(records.status_of(record), recorder.telemetry))
    assert [each["dur"] for each in events if each["name"] == "computing"] == [4_000_000]
    tasks = [each for each in events if each["name"] == "wörk"]
    assert [(each["ts"], each["dur"]) for each in tasks] == [
        (0, 2_000_000), (1_000_000, 2_000_000), (3_500_000, 1_000_000),
    ]  # fmt: skip
    first, second, third = (each["tid"] for each in tasks)
    assert first == third != second, "two at a time need two threads"
    assert tasks[2]["args"] == {"erred": True}
    counters = [each for each in events if each["name"] == "gpu0 utilisation"]
    assert [(each["ts"], each["args"]) for each in counters] == [
        (0, {"%": 50}), (1_000_000, {"%": 0}),
    ]  # fmt: skip
    names = {each["args"]["name"] for each in events if each["ph"] == "M"}
    assert {"h", "gpu0", "gpu0 +1"} <= names
