"""The limits of control groups, in both versions, the tightest of those that apply."""

from pathlib import Path

import pytest

from gputui.process import procfs
from gputui.process.cgroups import Cgroups
from gputui.process.procfs import MemoryUse

GIB = 2**30


def write(folder: Path, **files: str) -> None:
    """Make a group with these files; `__` in a name is a dot."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)


def test_version_2_takes_the_tightest_group_above_this_process(tmp_path):
    stat = f"anon 5\ninactive_file {GIB}\n"
    write(
        tmp_path / "a", memory__max=f"{8 * GIB}\n", memory__current=f"{3 * GIB}", memory__stat=stat
    )
    write(tmp_path / "a/b", memory__max="max\n", cpu__max="250000 100000\n")
    cgroups = Cgroups(tmp_path, "0::/a/b\n")
    assert cgroups.memory() == MemoryUse(8 * GIB, 2 * GIB)
    assert cgroups.cpus() == 3


def test_version_1_has_a_folder_for_each_controller(tmp_path):
    memory = {"memory__limit_in_bytes": str(4 * GIB), "memory__usage_in_bytes": str(GIB)}
    write(tmp_path / "memory/job", **memory, memory__stat="total_inactive_file 0\n")
    write(tmp_path / "memory", memory__limit_in_bytes=str(2**63 - 4096))
    write(tmp_path / "cpu/job", cpu__cfs_quota_us="150000", cpu__cfs_period_us="100000")
    cgroups = Cgroups(tmp_path, "4:memory:/job\n1:cpu,cpuacct:/job\n0::/\n")
    assert cgroups.memory() == MemoryUse(4 * GIB, GIB)
    assert cgroups.cpus() == 2


def test_in_a_container_the_mount_itself_counts(tmp_path):
    write(tmp_path, memory__max=str(GIB), memory__current="0", cpu__max="50000 100000")
    cgroups = Cgroups(tmp_path, "0::/../../the/hosts/path\n")
    assert cgroups.memory() == MemoryUse(GIB, 0)
    assert cgroups.cpus() == 1


@pytest.mark.parametrize("quota", ["-1", "0"])
def test_where_nothing_limits_there_is_no_limit(tmp_path, quota):
    write(tmp_path / "cpu", cpu__cfs_quota_us=quota, cpu__cfs_period_us="100000")
    write(tmp_path, memory__max="max", cpu__max="max 100000")
    cgroups = Cgroups(tmp_path, "1:cpu:/\n0::/\n")
    assert cgroups.memory() is None
    assert cgroups.cpus() is None


def test_a_machine_without_control_groups_has_no_limit(tmp_path):
    assert Cgroups(tmp_path, "").memory() is None
    assert Cgroups(tmp_path, "").cpus() is None


def test_the_kernels_kills_are_those_of_the_own_group(tmp_path):
    write(tmp_path / "a/b", memory__events="oom 2\noom_kill 2\noom_group_kill 0\n")
    write(tmp_path / "a", memory__events="oom 9\noom_kill 9\n")
    assert Cgroups(tmp_path, "0::/a/b\n").oom_kills() == 2
    control = "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n"
    write(tmp_path / "memory/job", memory__oom_control=control)
    assert Cgroups(tmp_path, "4:memory:/job\n0::/a/b\n").oom_kills() == 3


def test_processes_and_threads_are_counted_in_the_fullest_group(tmp_path):
    write(tmp_path / "a/b", pids__max="max\n", pids__current="95\n")
    assert Cgroups(tmp_path, "0::/a/b\n").tasks() is None
    write(tmp_path / "a", pids__max="100\n", pids__current="97\n")
    write(tmp_path / "pids/b", pids__max="20\n", pids__current="5\n")
    assert Cgroups(tmp_path, "4:pids:/b\n0::/a/b\n").tasks() == (97, 100)


def test_limits_that_are_hit_are_those_of_the_own_group_and_of_those_above_it(tmp_path):
    write(tmp_path / "a/b", memory__events="oom 2\noom_kill 2\n")
    write(tmp_path / "a", memory__events="oom 7\noom_kill 9\n")
    write(tmp_path / "memory/job", memory__failcnt="30\n")
    assert Cgroups(tmp_path, "0::/a/b\n").limit_hits() == 9
    assert Cgroups(tmp_path, "4:memory:/job\n").limit_hits() == 30


def test_without_a_group_the_kernels_kills_are_those_of_the_host(tmp_path):
    assert Cgroups(tmp_path, "0::/\n").oom_kills() == procfs.number_after(
        "oom_kill", procfs.read_text("/proc/vmstat")
    )
