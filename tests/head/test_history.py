"""What the head keeps of the last hour, and what a frontend makes of it."""

import base64
from dataclasses import replace

import numpy as np
import pytest

from gputui.head.broadcasts import EVENTS_BYTES_EACH, EventLog
from gputui.head.cluster_view import RecentHistory
from gputui.model.readings import DeviceReading, HostReading
from gputui.model.series import HistoryTaken, Metric
from gputui.model.snapshot import (
    HostState,
    HostStatus,
    Severity,
    WorkerState,
    WorkerStatus,
)
from gputui.protocol.channel import QUEUE_BYTES
from gputui.protocol.frontend import EventHappened, ToFrontend
from gputui.protocol.typed_codec import decode, encode
from tests.clusters import Clusters

UTILIZATION, POWER = Metric.UTILIZATION, Metric.POWER


def host(*percents: float | None, state: HostState = HostState.READY) -> HostStatus:
    devices = tuple(
        DeviceReading(f"GPU-{place}", str(place), "H200", utilization_percent=percent, power_w=99.9)
        for place, percent in enumerate(percents)
    )
    return HostStatus("h", state, 0.0, reading=HostReading(cpu_percent=5.0), devices=devices)


class Kept:
    """A history of one host, as its hosts are set."""

    def __init__(self) -> None:
        self.hosts: tuple[HostStatus, ...] = ()
        self.workers: tuple[WorkerStatus, ...] = ()
        self.history = RecentHistory(lambda: self.hosts, lambda: self.workers)
        self.now = 0.0

    def take(self, *statuses: HostStatus) -> None:
        for status in statuses:
            self.hosts, self.now = (status,), self.now + 1
            self.history.take(self.now)

    def taken(self) -> HistoryTaken:
        (taken,) = self.history.taken()
        decoded: HistoryTaken = decode(encode(taken), ToFrontend)
        return decoded


def fine(taken: HistoryTaken, key: str, metric: int = UTILIZATION) -> list[float | None]:
    return _values(taken, key, metric)[: taken.fine_rows]


def coarse(taken: HistoryTaken, key: str) -> list[float | None]:
    return _values(taken, key, UTILIZATION)[taken.fine_rows :]


def _values(taken: HistoryTaken, key: str, metric: int) -> list[float | None]:
    rows = np.frombuffer(base64.b64decode(taken.values), "<f2").reshape(-1, len(taken.keys), 6)
    found = rows[:, taken.keys.index(key), metric].tolist()
    return [None if value != value else value for value in found]


def test_two_minutes_are_kept_second_by_second_and_an_hour_in_means_of_ten() -> None:
    kept = Kept()
    kept.take(*(host(second % 100) for second in range(3_700)))
    taken = kept.taken()
    assert fine(taken, "GPU-0") == [float(second % 100) for second in range(3_580, 3_700)]
    assert taken.coarse_rows == 360
    assert coarse(taken, "GPU-0")[-3:] == [74.5, 84.5, 94.5]
    assert (taken.fine_at, taken.coarse_at) == (3_700.0, 3_700.0)
    assert fine(taken, "GPU-0", POWER)[-1] == pytest.approx(99.9, rel=1e-3)
    assert fine(taken, "h")[-1] == 5.0


LOST = replace(host(50.0), devices=(replace(host(50.0).devices[0], lost=True),))
KEPT = {
    "a host that does not answer": (
        [host(10.0), host(20.0, state=HostState.SILENT), host(None), host(40.0)],
        {"GPU-0": [10.0, None, None, 40.0]},
    ),
    "a GPU that is lost": ([host(50.0), LOST], {"GPU-0": [50.0, None]}),
    "a GPU that comes later": (
        [host(10.0), host(20.0, 99.0), host(30.0, 98.0)],
        {"GPU-0": [10.0, 20.0, 30.0], "GPU-1": [None, 99.0, 98.0]},
    ),
}


@pytest.mark.parametrize(("statuses", "expected"), KEPT.values(), ids=KEPT)
def test_only_what_was_read_is_kept_and_all_of_it(
    statuses: list[HostStatus], expected: dict[str, list[float | None]]
) -> None:
    kept = Kept()
    kept.take(*statuses)
    assert {gpu: fine(kept.taken(), gpu) for gpu in expected} == expected


def test_what_cpu_workers_did_is_kept_by_their_names_while_they_come_and_go() -> None:
    kept = Kept()
    first, second = (
        WorkerStatus(f"h:cpu{n}", "h", WorkerState.BUSY, cpu_percent=80.0 * n, nthreads=2)
        for n in (1, 2)
    )
    for workers in ((first,), (first, second), (second,)):
        kept.workers = workers
        kept.take(host())
    assert fine(kept.taken(), "h:cpu2") == [None, 80.0, 80.0]
    assert kept.taken().keys == ("h", "h:cpu2")


def test_a_host_that_is_removed_is_forgotten() -> None:
    kept = Kept()
    kept.take(host(10.0))
    kept.hosts = ()
    kept.history.take(2.0)
    assert not list(kept.history.taken())


@pytest.mark.slow
async def test_a_screen_that_attaches_sees_what_was_before(clusters: Clusters) -> None:
    cluster = await clusters.start(up=2)
    later = await clusters.attach(cluster.head, cluster.socket)
    await later.until(lambda: later.history)
    assert later.snapshot, "rows stand before the past of all hosts is there"
    assert later.history[0].host == "localhost"
    assert fine(later.history[0], "localhost")


def test_a_host_that_reports_without_end_pushes_out_its_own_events_only() -> None:
    recorded: list[ToFrontend] = []
    log = EventLog(recorded.append)
    log.tell(Severity.INFO, "honest", "ready", "10.0.0.1")
    for number in range(20_000):
        log.tell(Severity.INFO, f"liar:gpu{number % 9}", "ready", f"{number} {'x' * 4_000}")
    assert log.events[0].subject == "honest"
    assert log.events[-1].text.startswith("19999 ")
    assert sum(len(encode(EventHappened(event))) for event in log.events) < EVENTS_BYTES_EACH * 1.1
    assert len(recorded) == 20_001


@pytest.mark.parametrize("text", ["名", "\x01", '"'])
def test_what_a_frontend_is_sent_first_fits_its_queue_however_many_hosts_report(text: str) -> None:
    log = EventLog(lambda event: None)
    for number in range(3_000):
        log.tell(Severity.INFO, f"h{number}" * 99, "ready", text * 4_000)
    assert 0 < sum(len(encode(EventHappened(event))) for event in log.events) < QUEUE_BYTES / 2
