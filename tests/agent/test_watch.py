"""The GPUs are read all the time, and nobody ever waits for NVML."""

import time

from gputui.agent.gpu.watch import DeviceWatch
from tests.agent.driving import quickest
from tests.system.conftest import wait_until


def seen(watch: DeviceWatch) -> list[tuple[bool, float | None]]:
    """Return of each GPU whether its reading is stale, and its utilization."""
    return [(device.stale, device.utilization_percent) for device in watch.devices()]


def test_a_gpu_that_hangs_is_marked_and_the_others_go_on(nvml, watching):
    nvml.set(gpus=[{"utilization": 1}, {}])
    watch = watching()
    nvml.set(gpus=[{"hang": ["nvmlDeviceGetPowerUsage"]}, {"utilization": 7}])
    wait_until(lambda: seen(watch) == [(True, 1), (False, 7)])
    assert quickest(watch.devices) < 0.1


def test_without_a_driver_there_are_no_devices_and_a_warning(nvml, watching):
    nvml.set(open_error="LibraryNotFound")
    watch = watching()
    assert watch.devices() == ()
    assert "install the driver" in watch.warnings()[0]


def test_what_befalls_a_gpu_is_said_of_what_ends_after_it(nvml, watching):
    nvml.set(gpus=[{"xids": [43]}, {}])
    watch = watching()
    nvml.set(gpus=[{"xids": [43, 31]}, {"lost": True}])
    wait_until(lambda: watch.devices()[0].xid and watch.devices()[1].lost)
    uuids = [device.uuid for device in watch.devices()]
    assert [watch.trouble_of(uuid, 0.0) for uuid in uuids] == [
        "Xid 31, GPU memory page fault",
        "it fell off the bus",
    ]
    assert watch.trouble_of(uuids[0], time.time()) == watch.trouble_of(None, 0.0) == ""


def test_indices_count_the_gpus_that_may_be_opened(nvml, watching):
    nvml.set(gpus=[{"forbidden": True}, {}, {}])
    watch = watching(environ={"CUDA_VISIBLE_DEVICES": "0"})
    assert {device.label: device.usable for device in watch.devices()} == {"0": True, "1": False}


def test_a_mig_parent_is_never_usable_even_when_selected(nvml, watching):
    nvml.set(gpus=[{"mig": [{}, {}]}, {}])
    watch = watching(environ={"CUDA_VISIBLE_DEVICES": "0"})
    usable = {device.label: device.usable for device in watch.devices()}
    assert usable == {"0": False, "0.0": True, "0.1": True, "1": False}


def test_indices_among_unlike_gpus_are_warned_about(nvml, watching):
    nvml.set(gpus=[{"name": "NVIDIA T400"}, {"name": "NVIDIA H200"}])
    watch = watching(environ={"CUDA_VISIBLE_DEVICES": "0"})
    assert "CUDA_DEVICE_ORDER" in watch.warnings()[0]


def test_a_mig_instance_has_the_cpus_of_its_gpu(nvml, near, watching):
    nvml.set(gpus=[{"mig": [{}]}])
    near(0, 0)
    watch = watching()
    parent, instance = watch.devices()
    assert watch.cpus_near(instance.uuid) == watch.cpus_near(parent.uuid) == {0}
