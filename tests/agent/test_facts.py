"""What a host is, gathered once."""

import os
import platform
import sys
import time

from gputui.agent import facts
from gputui.agent.facts import gather_facts
from gputui.agent.gpu.watch import DeviceWatch
from gputui.process import procfs
from gputui.process.cgroups import Cgroups, memory
from gputui.protocol.agent import Facts
from gputui.protocol.codec import encode
from gputui.protocol.typed_codec import decode


def test_the_facts_of_this_machine(nvml, watching, tmp_path):
    nvml.set(gpus=[{"cpus": [0]}, {}], driver="580.159.04", cuda=12090)
    environ = {"CUDA_VISIBLE_DEVICES": "1"}
    found = gather_facts(watching(environ=environ), scratch=tmp_path, environ=environ)
    assert (found.python, found.python_version) == (sys.executable, platform.python_version())
    assert found.agent_pid == os.getpid()
    assert (found.cuda_driver, found.driver_version) == ("12.9", "580.159.04")
    assert found.cuda_visible_devices == "1"
    assert [device.usable for device in found.devices] == [False, True]
    assert 1 <= found.cpus <= len(os.sched_getaffinity(0))
    assert 0 < found.memory_total_bytes <= procfs.memory().total_bytes
    assert "dask" in dict(found.packages)
    assert found.warnings == ()


def test_facts_travel(nvml, watching, tmp_path):
    nvml.set(gpus=[{"mig": [{}]}, {"processes": [{"pid": 1, "memory_mib": 1}]}])
    found = gather_facts(watching(), scratch=tmp_path, environ={})
    assert decode(encode(found), Facts) == found


def test_an_nvml_that_hangs_does_not_hold_the_facts_up(nvml, tmp_path):
    nvml.set(gpus=2, hang=["nvmlInit"])
    watch = DeviceWatch("test", environ={})
    watch.start()
    began = time.monotonic()
    found = gather_facts(watch, scratch=tmp_path, environ={}, timeout_s=0.05)
    assert time.monotonic() - began < 20  # it hangs for ever
    assert found.devices == ()
    assert "does not answer" in found.warnings[0]
    watch.stop()
    nvml.set(gpus=0)


def test_a_scratch_folder_that_is_not_there_yet_has_its_disks_space(tmp_path):
    assert facts.disk_free(tmp_path / "not" / "yet") is not None


def test_a_control_groups_limit_counts_when_it_is_less_than_the_machine_has(tmp_path):
    machine = procfs.memory().total_bytes
    (tmp_path / "memory.max").write_text("1048576")
    assert memory(Cgroups(tmp_path, "0::/\n")).total_bytes == 1048576
    (tmp_path / "memory.max").write_text(str(2 * machine))
    assert memory(Cgroups(tmp_path, "0::/\n")).total_bytes == machine
