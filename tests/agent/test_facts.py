"""What a host is, gathered once; versions come from metadata, and the first on the path wins."""

import importlib.metadata
import os
import platform
import sys
import time
from pathlib import Path

from gputui.agent.facts import gather_facts
from gputui.agent.gpu.watch import DeviceWatch
from gputui.agent.packages import installed
from gputui.process import procfs
from gputui.process.cgroups import Cgroups, memory


def test_the_facts_of_this_machine(nvml, watching, tmp_path):
    nvml.set(gpus=2, driver="580.159.04", cuda=12090)
    environ = {"CUDA_VISIBLE_DEVICES": "1"}
    found = gather_facts(watching(environ=environ), scratch=tmp_path, environ=environ)
    assert (found.python, found.python_version) == (sys.executable, platform.python_version())
    assert found.agent_pid == os.getpid()
    assert found.cuda_driver == "12.9"
    assert found.cuda_visible_devices == "1"
    assert [device.usable for device in found.devices] == [False, True]
    assert 1 <= found.cpus <= len(os.sched_getaffinity(0))
    assert 0 < found.memory_total_bytes <= procfs.memory().total_bytes
    assert "dask" in dict(found.packages)
    assert found.warnings == ()


def test_an_nvml_that_hangs_does_not_hold_the_facts_up(nvml, tmp_path):
    nvml.set(gpus=2, hang=["nvmlInit"])
    watch = DeviceWatch("test", environ={})
    watch.start()
    began = time.monotonic()
    found = gather_facts(watch, scratch=tmp_path, environ={}, timeout_s=0.05)
    assert time.monotonic() - began < 20  # it hangs for ever
    assert found.devices == ()
    assert "does not answer" in found.warnings[0]
    watch.stopped.set()
    nvml.set(gpus=0)


def test_a_control_groups_limit_counts_when_it_is_less_than_the_machine_has(tmp_path):
    machine = procfs.memory().total_bytes
    (tmp_path / "memory.max").write_text("1048576")
    assert memory(Cgroups(tmp_path, "0::/\n")).total_bytes == 1048576
    (tmp_path / "memory.max").write_text(str(2 * machine))
    assert memory(Cgroups(tmp_path, "0::/\n")).total_bytes == machine


def install(folder: Path, name: str, version: str, suffix: str = "dist-info") -> None:
    """Put a distribution's metadata into a folder, as pip leaves it."""
    metadata = folder / f"{name}-{version}.{suffix}"
    metadata.mkdir(parents=True)
    file = metadata / ("METADATA" if suffix == "dist-info" else "PKG-INFO")
    file.write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


def test_the_packages_that_matter_are_found_under_their_own_names(tmp_path):
    install(tmp_path, "cupy_cuda13x", "14.2.0")
    install(tmp_path, "dask_cuda", "26.10.0")
    install(tmp_path, "requests", "2.32.0")
    assert installed([str(tmp_path)]) == (("cupy-cuda13x", "14.2.0"), ("dask-cuda", "26.10.0"))


def test_the_first_on_the_path_wins(tmp_path):
    install(tmp_path / "user", "dask", "2026.8.0")
    install(tmp_path / "system", "dask", "2024.1.0")
    install(tmp_path / "system", "numpy", "1.26.4", "egg-info")
    folders = [str(tmp_path / "missing"), str(tmp_path / "user"), str(tmp_path / "system")]
    assert installed(folders) == (("dask", "2026.8.0"), ("numpy", "1.26.4"))


def test_an_egg_info_that_is_a_file_and_one_for_a_single_python_are_found(tmp_path):
    (tmp_path / "scipy-1.8.0.egg-info").write_text("Name: scipy\nVersion: 1.8.0\n")
    (tmp_path / "torch-2.6.0+cu124-py3.11.egg-info").mkdir()
    (tmp_path / "zarr.egg-info").mkdir()
    (tmp_path / "dask.egg-info").mkdir()  # of a source tree in development
    (tmp_path / "dask.egg-info" / "PKG-INFO").write_text("Name: dask\nVersion: 2026.8.1+3\n")
    assert installed([str(tmp_path)]) == (
        ("dask", "2026.8.1+3"),
        ("scipy", "1.8.0"),
        ("torch", "2.6.0+cu124"),
        ("zarr", ""),
    )


def test_what_this_interpreter_has_is_what_its_metadata_say():
    versions = dict(installed())
    for name in ("dask", "distributed", "numpy"):
        assert versions[name] == importlib.metadata.version(name)
