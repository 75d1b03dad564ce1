"""MIG through the real pynvml: it loads a library, built here, that answers as a driver would."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import fakes
from tests.system.conftest import Command, wait_until

COMPILER = shutil.which("gcc") or shutil.which("cc")
pytestmark = pytest.mark.skipif(COMPILER is None, reason="needs a C compiler")

A100 = """gpu GPU-a100 NVIDIA_A100-SXM4-40GB 40960 1 0
mig 0 0 MIG-a0 NVIDIA_A100-SXM4-40GB_MIG_3g.20gb 19968
mig 0 2 MIG-a2 NVIDIA_A100-SXM4-40GB_MIG_1g.5gb 4864
"""
H100 = """gpu GPU-h100 NVIDIA_H100_80GB_HBM3 81559 1 0
mig 1 0 MIG-h0 NVIDIA_H100_80GB_HBM3_MIG_1g.10gb+me 9984
gpu GPU-whole NVIDIA_H100_80GB_HBM3 81559 0 0
"""
READ = """
import json, sys
from dataclasses import asdict
from gputui.agent.gpu.watch import DeviceWatch
watch = DeviceWatch("test", environ={}, interval_s=0.02, stale_after_s=0.2)
watch.start()
watch.wait(20)
for _ in sys.stdin:
    said = [[asdict(each) for each in watch.devices()], watch.warnings()]
    print(json.dumps(said), flush=True)
"""
BOUND_S = 20


class Machine:
    """A machine of the library's GPUs, as `READ` sees it."""

    def __init__(self, folder: Path) -> None:
        self.state = folder / "gpus.txt"
        library = folder / "libnvidia-ml.so.1"
        source = Path(fakes.__file__).with_name("nvml.c")
        command = [str(COMPILER), "-shared", "-fPIC", "-o", str(library), str(source)]
        subprocess.run(command, check=True)
        self.env = {"LD_LIBRARY_PATH": str(folder), "MOCK_NVML": str(self.state)}

    def set(self, text: str) -> None:
        draft = self.state.with_suffix(".new")
        draft.write_text(text)
        draft.replace(self.state)

    @contextlib.contextmanager
    def reader(self) -> Iterator[Callable[[], tuple[dict[str, dict[str, Any]], list[str]]]]:
        """Give a function that returns the readings by label, and the warnings."""
        words = [sys.executable, "-c", READ]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        with subprocess.Popen(words, env=os.environ | self.env, **pipes) as process:

            def read() -> tuple[dict[str, dict[str, Any]], list[str]]:
                process.stdin.write("\n")
                process.stdin.flush()
                devices, warnings = json.loads(process.stdout.readline())
                return {each["label"]: each for each in devices}, warnings

            try:
                yield read
            finally:
                process.kill()


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    one = Machine(tmp_path)
    one.set(A100 + H100)
    return one


def test_a_gpu_in_mig_mode_gives_its_instances(machine: Machine) -> None:
    with machine.reader() as read:
        devices, warnings = read()
    assert list(devices) == ["0", "0.0", "0.2", "1", "1.0", "2"]
    assert [each["usable"] for each in devices.values()] == [False, True, True, False, True, True]
    assert devices["0.2"]["uuid"] == "MIG-a2"
    assert devices["0.2"]["name"] == "NVIDIA A100-SXM4-40GB MIG 1g.5gb"
    assert devices["1.0"]["memory_total_bytes"] == 9984 * 2**20
    assert devices["2"]["utilization_percent"] == 7
    assert devices["0"]["utilization_percent"] is devices["0.0"]["utilization_percent"] is None
    assert warnings == []


def test_an_xid_is_read_once_with_its_gpu_and_when(machine: Machine) -> None:
    with machine.reader() as read:
        assert read()[0]["2"]["xid_at"] is None
        machine.set(A100 + H100 + "xid 1 31\nxid 2 79\n")
        wait_until(lambda: read()[0]["2"]["xid"] == 79)
        devices = read()[0]
        assert [devices[each]["xid"] for each in ("0", "1", "1.0", "2")] == [0, 31, 31, 79]
        assert time.time() - BOUND_S < devices["2"]["xid_at"] < time.time()
        assert read()[0]["2"]["xid_at"] == devices["2"]["xid_at"]


def test_an_instance_that_is_destroyed_is_lost_and_the_others_stay(machine: Machine) -> None:
    with machine.reader() as read:
        read()
        machine.set(A100.replace("mig 0 2 ", "#") + H100)
        wait_until(lambda: read()[0]["0.2"]["lost"])
        devices, _ = read()
        assert [each["lost"] for each in devices.values()] == [False, False, True, *3 * [False]]
        assert devices["0.2"]["memory_total_bytes"] == 4864 * 2**20
        machine.set(A100.replace("MIG-a2", "MIG-a9") + H100)
        wait_until(lambda: read()[0]["0.2"]["uuid"] == "MIG-a9")
        assert not read()[0]["0.2"]["lost"]


def test_a_driver_that_hangs_makes_readings_stale_and_nothing_waits_for_it(
    machine: Machine,
) -> None:
    with machine.reader() as read:
        read()
        machine.set(f"{A100}{H100}hang nvmlDeviceGetMemoryInfo_v2\n")
        wait_until(lambda: all(each["stale"] for each in read()[0].values()))
        assert list(read()[0]) == ["0", "0.0", "0.2", "1", "1.0", "2"]
        machine.set(A100 + H100)
        wait_until(lambda: not any(each["stale"] for each in read()[0].values()))


def test_what_restricts_a_gpu_is_named(machine: Machine, gputui: Command) -> None:
    machine.set("""gpu GPU-empty NVIDIA_H100 81559 1 0
gpu GPU-one NVIDIA_H100 81559 0 3
gpu GPU-none NVIDIA_H100 81559 0 2
gpu GPU-usual NVIDIA_H100 81559 0 0
""")
    with machine.reader() as read:
        empty, exclusive, prohibited = read()[1]
    assert empty.startswith("GPU 0 is in MIG mode and has no instances: make some with")
    assert exclusive.startswith("GPU 1 is in compute mode exclusive process: one process")
    assert prohibited.startswith("GPU 2 is in compute mode prohibited: no program")
    gputui.env |= machine.env
    said = gputui("doctor", "localhost").stdout
    assert all(f"! warning   {each}" in said for each in (empty, exclusive, prohibited))


def test_workers_are_named_after_the_instances_of_a_profile(
    machine: Machine, gputui: Command
) -> None:
    gputui.env |= machine.env
    hosts = "localhost gpus=mig:3g.20gb,mig:1g.10gb+me memory=1GiB"
    assert gputui("up", hosts, "--name", "lab").returncode == 0
    (cluster,) = json.loads(gputui("ls", "--json").stdout)
    assert cluster["workers"] == 2
    done = gputui("--attach", "lab", "--run", "smoke", "--backend", "numpy", "--json", "--quiet")
    workers = json.loads(done.stdout)["workers"]
    assert [(each["name"], each["device"]) for each in workers] == [
        ("localhost:mig0.0", "0.0"),
        ("localhost:mig1.0", "1.0"),
    ]


def test_doctor_names_the_instances_and_what_mig_rules_out(
    machine: Machine, gputui: Command
) -> None:
    gputui.env |= machine.env
    said = gputui("doctor", "localhost gpus=GPU-a100").stdout
    assert "mig       0.0 3g.20gb, 0.2 1g.5gb: no CUDA IPC, NVLink or NCCL" in said
    missing = gputui("doctor", "localhost gpus=mig:7g.40gb").stdout
    assert "no GPU mig:7g.40gb: it has 0, 0.0 3g.20gb, 0.2 1g.5gb, 1, 1.0 1g.10gb+me, 2" in missing


@pytest.mark.slow
def test_an_instance_that_is_destroyed_under_its_worker_is_named_and_the_others_go_on(
    machine: Machine, gputui: Command
) -> None:
    gputui.env |= machine.env
    assert gputui("up", "localhost gpus=mig memory=1GiB", "--name", "lab").returncode == 0
    machine.set(A100.replace("mig 0 2 ", "#") + H100)
    said = "localhost:mig0.2 was destroyed, or its GPU fell off the bus"
    wait_until(lambda: said in gputui("why", "lab").stdout)
    hosts = json.loads(gputui("who", "--json").stdout)
    lost = {gpu["gpu"]: gpu["lost"] for host in hosts for gpu in host["gpus"]}
    assert lost == {"0.0": False, "0.2": True, "1.0": False, "2": False}
    assert smoke(gputui) >= {"localhost:mig0.0", "localhost:mig1.0"}
    machine.set(A100 + H100)
    wait_until(lambda: said not in gputui("why", "lab").stdout)


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_workers_compute_while_the_driver_hangs_for_a_minute(
    machine: Machine, gputui: Command
) -> None:
    gputui.env |= machine.env
    assert gputui("up", "localhost gpus=mig memory=1GiB", "--name", "lab").returncode == 0
    machine.set(f"{A100}{H100}hang nvmlDeviceGetMemoryInfo_v2\n")
    until_s = time.monotonic() + 60
    wait_until(lambda: "the driver does not answer" in gputui("why", "lab").stdout)
    while time.monotonic() < until_s:
        assert len(smoke(gputui)) == 3
    machine.set(A100 + H100)
    wait_until(lambda: "the driver does not answer" not in gputui("why", "lab").stdout)
    assert gputui("down", "lab").returncode == 0


def smoke(gputui: Command) -> set[str]:
    """Run on all workers; return their names."""
    done = gputui("--attach", "lab", "--run", "smoke", "--backend", "numpy", "--json", "--quiet")
    said = json.loads(done.stdout)
    assert said["result"]["all_right"] and said["restarts"] == 0
    return {each["name"] for each in said["workers"]}
