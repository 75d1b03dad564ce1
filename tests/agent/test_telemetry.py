"""What a host and its workers do, second by second."""

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gputui.agent.gpu.telemetry import HostMeter, TelemetryReader, counted_interfaces
from gputui.model.readings import Owner
from gputui.process import procfs
from gputui.process.cgroups import Cgroups
from tests.system.conftest import wait_until


@pytest.fixture
def reader(nvml, watching) -> TelemetryReader:
    """A reader of this machine and a fake GPU on which this process runs."""
    nvml.set(gpus=[{"processes": [{"pid": os.getpid(), "memory_mib": 300}]}])
    return TelemetryReader(watching())


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_a_host_is_read_whole(reader):
    telemetry = reader.read({})
    assert telemetry.at == pytest.approx(time.time(), abs=5)
    assert telemetry.host.load_1m is not None
    assert telemetry.host.memory_used_bytes < telemetry.host.memory_total_bytes
    assert len(telemetry.devices) == 1


def test_a_workers_process_on_a_gpu_is_ours(reader):
    def owner() -> Owner:
        return reader.read({"a:gpu0": os.getpid()}).devices[0].processes[0].owner

    assert reader.read({}).devices[0].processes[0].owner is Owner.OTHER
    wait_until(lambda: owner() is Owner.OURS)


def test_open_files_are_counted():
    with subprocess.Popen(["sleep", "60"]) as child:
        listed = len(list(Path(f"/proc/{child.pid}/fd").iterdir()))
        assert procfs.open_files(child.pid) == listed > 2
        child.kill()
    before = procfs.open_files(os.getpid())
    with contextlib.ExitStack() as opened:
        for _ in range(40):
            opened.enter_context(Path(os.devnull).open())
        assert procfs.open_files(os.getpid()) == before + 40


def test_workers_are_read_by_name(reader):
    here, gone = reader.read({"a": os.getpid(), "b": 2**22 + 1}).workers
    assert (here.name, gone.name) == ("a", "b")
    assert here.rss_bytes > 2**20
    assert here.open_files > 2
    assert (gone.cpu_percent, gone.rss_bytes, gone.open_files) == (None, None, None)


def test_a_workers_cpu_is_taken_between_two_readings(nvml, watching):
    clock = Clock()
    reader = TelemetryReader(watching(), clock)
    assert reader.read({"a": os.getpid()}).workers[0].cpu_percent is None
    began = procfs.process_stat(os.getpid()).cpu_ticks
    while procfs.process_stat(os.getpid()).cpu_ticks < began + 20:
        pass
    clock.now_s += 0.1
    (worker,) = reader.read({"a": os.getpid()}).workers
    assert worker.cpu_percent >= 20 / procfs.TICKS_PER_S / 0.1 * 100


def test_the_hosts_cpu_and_network_are_rates():
    clock = Clock()
    meter = HostMeter(clock)
    began = procfs.cpu_times()
    while procfs.cpu_times().total <= began.total:
        pass
    clock.now_s += 1
    reading = meter.read()
    assert 0 <= reading.cpu_percent <= 100
    assert reading.network_receive_bytes_per_s >= 0


def test_an_interface_that_appears_or_starts_anew_is_no_traffic(monkeypatch):
    clock, counters = Clock(), {"eth0": (1000, 1000), "eth1": (5000, 5000)}
    monkeypatch.setattr(procfs, "network_counters", lambda: dict(counters))
    monkeypatch.setattr(procfs, "has_hardware", lambda name: True)
    meter = HostMeter(clock)
    rates = []
    for change in (
        {"eth0": (1500, 1200), "eth2": (5 * 10**12, 10**12)},
        {"eth0": (1600, 1300), "eth1": (10, 10)},
        {"eth0": (10, 10), "eth1": (5, 5), "eth2": (5, 5)},
    ):
        counters.update(change)
        clock.now_s += 1
        reading = meter.read()
        rates.append((reading.network_receive_bytes_per_s, reading.network_send_bytes_per_s))
    assert rates == [(500, 200), (100, 100), (None, None)]


def write_quota(folder: Path, quota_us: int, used_us: int) -> None:
    (folder / "job").mkdir(exist_ok=True)
    (folder / "job/cpu.max").write_text(f"{quota_us} 100000\n")
    (folder / "job/cpu.stat").write_text(f"usage_usec {used_us}\nuser_usec 1\n")


def test_a_container_that_uses_its_quota_is_busy_however_idle_the_machine_is(tmp_path):
    quota_us = 50_000  # half a CPU, which is less than any machine has
    write_quota(tmp_path, quota_us, used_us=7_000_000)
    clock = Clock()
    meter = HostMeter(clock, Cgroups(tmp_path, "0::/job\n"))
    assert meter.read().cpu_percent is None
    clock.now_s += 2
    write_quota(tmp_path, quota_us, used_us=7_750_000)
    assert meter.read().cpu_percent == pytest.approx(75)
    clock.now_s += 2
    assert meter.read().cpu_percent == 0


def test_a_quota_of_more_than_the_machine_has_is_none(tmp_path):
    write_quota(tmp_path, 100_000 * 1_000_000, used_us=0)
    meter = HostMeter(Clock(), Cgroups(tmp_path, "0::/job\n"))
    began = procfs.cpu_times()
    while procfs.cpu_times().total <= began.total + procfs.TICKS_PER_S // 10:
        pass
    assert meter.read().cpu_percent > 0


def test_a_loopback_alone_is_not_the_network():
    assert counted_interfaces(frozenset({"lo"})) == frozenset()
    assert counted_interfaces(frozenset({"lo", "no-such-0"})) == {"no-such-0"}


def test_neither_facts_nor_telemetry_import_more_than_the_standard_library():
    program = (
        "import sys; import gputui.agent.facts, gputui.agent.gpu.telemetry;"
        "gputui.agent.packages.installed();"
        "print([n for n in sys.modules if n.split('.')[0] in"
        " {'pynvml', 'dask', 'distributed', 'numpy', 'cupy', 'psutil', 'click'}])"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert result.stdout.strip() == "[]"
