"""What NVML says of a GPU becomes a reading, whatever it says."""

import os
import sys
from dataclasses import replace

import pytest

from gputui.agent.gpu.nvml import SLOW_EVERY, Gpu, Nvml, between
from gputui.errors import DevicesError
from gputui.model.readings import DeviceProcess, Owner, unseen_bytes

MIB = 2**20
SOMEBODY = DeviceProcess(0, Owner.OTHER, "bob", "python train.py", None)


def gpus() -> list[Gpu]:
    return Nvml.open().gpus(lambda pid: replace(SOMEBODY, pid=pid))[0]


def test_a_gpu_is_read_whole(nvml):
    nvml.set(gpus=[{"utilization": 87, "used_mib": 1000, "ecc_errors": 2, "event_reasons": 0x44}])
    (reading,) = gpus()[0].read()
    assert reading.label == "0"
    assert reading.name == "NVIDIA H200"
    assert reading.utilization_percent == 87
    assert (reading.memory_used_bytes, reading.memory_total_bytes) == (1000 * MIB, 143771 * MIB)
    assert (reading.power_w, reading.power_limit_w) == (76.5, 700)
    assert (reading.temperature_c, reading.sm_clock_mhz) == (33, 1980)
    assert reading.ecc_errors == 2
    assert reading.usable
    assert not reading.lost


def test_the_energy_counter_is_read_every_ten_seconds_only(nvml):
    nvml.set(gpus=[{"energy_mj": 2_500}])
    (gpu,) = gpus()
    assert gpu.read()[0].energy_j == 2.5
    nvml.set(gpus=[{"energy_mj": 9_500}])
    found = [gpu.read()[0].energy_j for _ in range(SLOW_EVERY)]
    assert found == [2.5] * (SLOW_EVERY - 1) + [9.5]


def test_a_card_that_tells_nothing_but_its_uuid_is_still_read(nvml):
    functions = [name for name in dir(Nvml.open().pynvml) if name.startswith("nvmlDevice")]
    needed = {"nvmlDeviceGetUUID", "nvmlDeviceGetHandleByIndex"}
    nvml.set(gpus=[{"unsupported": [name for name in functions if name not in needed]}])
    (reading,) = gpus()[0].read()
    assert (reading.temperature_c, reading.sm_clock_mhz, reading.ecc_errors) == (None, None, None)
    assert (reading.memory_total_bytes, reading.memory_used_bytes) == (None, None)
    assert (reading.utilization_percent, reading.power_w, reading.power_limit_w) == (None,) * 3
    assert reading.processes == () and not reading.lost


def test_what_connects_gpus_is_read_once_and_what_goes_over_it_each_time(nvml):
    nvml.set(gpus=[{"nvlinks": 18}, {"nvlinks": 18}, {}])
    first, _, alone = gpus()
    assert first.read()[0].nvlink_bytes_per_s is None
    nvml.set(gpus=[{"nvlinks": 18, "nvlink_kib": 2**20}, {}, {}])
    [reading] = [first.read() for _ in range(SLOW_EVERY)][-1]
    assert reading.nvlink_bytes_per_s > 0
    found = reading.interconnect
    assert (found.nvlinks, found.nvlink_peers) == (18, ("1",))
    assert found.nvlink_bytes_per_s == pytest.approx(478e9, rel=0.01)
    assert found.pcie_bytes_per_s == pytest.approx(63e9, rel=0.01)
    without = alone.read()[0]
    assert without.interconnect.nvlinks == 0 and without.nvlink_bytes_per_s is None


def test_the_way_between_two_gpus_is_nvlink_pcie_or_the_device_itself(nvml):
    nvml.set(gpus=[{"nvlinks": 18}, {"nvlinks": 18}, {"pcie": [4, 8]}])
    uuids = [gpu.last[0].uuid for gpu in gpus()]
    assert between(uuids[0], uuids[1])[0] == "NVLink"
    assert between(uuids[2], uuids[0]) == ("PCIe", pytest.approx(15.75e9, rel=0.01))
    assert between(uuids[0], uuids[0]) == ("device memory", None)


def test_only_throttling_that_costs_speed_unasked_is_told(nvml):
    nvml.set(gpus=[{"event_reasons": 0x1 | 0x4 | 0x2}, {"event_reasons": 0x40 | 0x80}])
    idle, hot = (gpu.read()[0] for gpu in gpus())
    assert idle.throttle_reasons == ()
    assert hot.throttle_reasons == ("hardware thermal slowdown", "power brake")


def test_an_older_driver_without_memory_version_2_still_tells_the_memory(nvml):
    nvml.set(gpus=[{"unsupported": ["nvmlDeviceGetMemoryInfo_v2"], "used_mib": 4}])
    (reading,) = gpus()[0].read()
    assert reading.memory_used_bytes == 604 * MIB


def test_a_lost_gpu_keeps_its_last_readings_and_comes_back(nvml):
    nvml.set(gpus=[{"utilization": 50}])
    (gpu,) = gpus()
    gpu.read()
    nvml.set(gpus=[{"lost": True}])
    (lost,) = gpu.read()
    assert lost.lost
    assert lost.utilization_percent == 50
    nvml.set(gpus=[{"utilization": 10}])
    (back,) = gpu.read()
    assert (back.lost, back.utilization_percent) == (False, 10)


def test_a_gpu_that_is_lost_from_the_start_does_not_hide_the_others(nvml):
    nvml.set(gpus=[{}, {"lost": True}, {}])
    found, warnings = Nvml.open().gpus(lambda pid: replace(SOMEBODY, pid=pid))
    assert [gpu.label for gpu in found] == ["0", "2"]
    assert len(warnings) == 1
    assert warnings[0].startswith("GPU 1 cannot be used")


def test_a_gpu_that_a_device_cgroup_hides_is_not_there(nvml):
    nvml.set(gpus=[{"forbidden": True}, {}])
    found, warnings = Nvml.open().gpus(lambda pid: replace(SOMEBODY, pid=pid))
    assert ([gpu.last[0].uuid for gpu in found], warnings) == (
        ["GPU-00000001-0000-0000-0000-000000000000"],
        [],
    )
    assert [gpu.label for gpu in found] == ["0"]  # as CUDA counts there


def test_mig_instances_follow_their_gpu_which_is_then_not_usable(nvml):
    process = {"pid": 1, "memory_mib": 100}
    nvml.set(gpus=[{"mig": [{"used_mib": 112, "processes": [process]}, None, {}]}])
    (gpu,) = gpus()
    parent, first, second = gpu.read()
    assert not parent.usable
    assert parent.utilization_percent is None
    assert parent.power_w == 76.5
    assert [first.label, second.label] == ["0.0", "0.2"]
    assert first.uuid.startswith("MIG-")
    assert first.usable
    assert first.is_mig
    assert first.memory_used_bytes == 112 * MIB
    assert first.utilization_percent is None
    assert [p.pid for p in first.processes] == [1]
    nvml.set(gpus=[{}])  # it leaves MIG mode
    assert any(len(gpu.read()) == 1 for _ in range(20))


def test_a_process_is_told_with_its_user_command_and_memory(nvml):
    running = [{"pid": 41, "memory_mib": 500}, {"pid": 42, "memory_mib": None}]
    nvml.set(gpus=[{"processes": running}])
    first, second = gpus()[0].read()[0].processes
    assert (first.pid, first.memory_bytes) == (41, 500 * MIB)
    assert (first.owner, first.user, first.command) == (Owner.OTHER, "bob", "python train.py")
    assert second.memory_bytes is None


def test_what_a_desktop_draws_with_is_not_held_unseen(nvml):
    both = {"pid": 1, "memory_mib": 300, "type": "C+G"}
    drawing = {"pid": 2, "memory_mib": 2500, "type": "G"}
    nvml.set(gpus=[{"used_mib": 3000, "processes": [both, drawing]}, {"used_mib": 3000}])
    desktop, other = (gpu.read()[0] for gpu in gpus())
    assert [each.pid for each in desktop.processes] == [1]
    assert (unseen_bytes(desktop), unseen_bytes(other)) == (0, 3000 * MIB)


def test_the_cpus_near_a_gpu_are_those_this_process_may_use(nvml, near):
    allowed = os.sched_getaffinity(0)
    near(0, min(allowed), 100)
    near(1, 100)
    assert [gpu.cpus for gpu in gpus()] == [{min(allowed)}, allowed]
    near.folder.rename(near.folder.with_name("other"))
    assert [gpu.cpus for gpu in gpus()] == [allowed, allowed]


@pytest.mark.parametrize(
    ("error", "words"),
    [
        ("LibraryNotFound", "install the driver"),
        ("DriverNotLoaded", "modprobe"),
        ("LibRmVersionMismatch", "reboot"),
        ("NoPermission", "/dev/nvidiactl"),
        ("Unknown", "does nvidia-smi work"),
    ],
)
def test_an_nvml_that_does_not_open_says_what_to_do(nvml, error, words):
    nvml.set(open_error=error)
    with pytest.raises(DevicesError, match=words):
        Nvml.open()


def test_a_missing_pynvml_names_what_to_install(nvml, monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(DevicesError, match="nvidia-ml-py"):
        Nvml.open()


def test_the_power_of_an_idle_card_is_known_once_it_has_idled_for_some_seconds(nvml):
    nvml.set(gpus=[{"power_mw": 119_000}])
    (gpu,) = gpus()
    assert [gpu.read()[0].idle_power_w for _ in range(6)] == [None] * 4 + [119.0] * 2
    nvml.set(gpus=[{"power_mw": 600_000, "utilization": 99}])
    assert gpu.read()[0].idle_power_w == 119.0
