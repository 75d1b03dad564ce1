"""What a host's facts say against using it."""

from dataclasses import replace

import pytest

from gputui.fleet import checks
from gputui.fleet.checks import Finding, Verdict, capacity, examine
from gputui.fleet.stages import FleetSettings, Versions
from gputui.model import readings
from gputui.model.hosts import Host
from gputui.model.readings import DeviceProcess, DeviceReading, Owner
from gputui.protocol.agent import Facts

SETTINGS = FleetSettings("test", versions=Versions("3.11", "2026.8.0", "2026.8.0"))
PACKAGES = (("dask", "2026.8.0"), ("distributed", "2026.8.0"), ("numpy", "2.4.0"))
GPUS = tuple(DeviceReading(f"GPU-{number}f", str(number), "NVIDIA H200") for number in range(2))
MIG = (
    DeviceReading("GPU-0f", "0", "NVIDIA H200", usable=False),
    DeviceReading("MIG-a1", "0.1", "NVIDIA H200 MIG 1g.18gb"),
    DeviceReading("MIG-a2", "0.2", "NVIDIA H200 MIG 1g.18gb"),
)
FACTS = Facts(
    agent_pid=1,
    python="/opt/env/bin/python",
    python_version="3.11.9",
    packages=(*PACKAGES, ("cupy-cuda13x", "14.2.0")),
    cuda_driver="13.0",
    cpus=8,
    memory_total_bytes=2**36,
    disk_free_bytes=2**36,
    devices=GPUS,
    cuda_visible_devices=None,
    running=(),
)


EVERY_GPU = Host("gpu-a")


def refusal(
    host: Host = EVERY_GPU, settings: FleetSettings = SETTINGS, **facts: object
) -> Finding | None:
    found = examine(host, replace(FACTS, **facts), settings)
    return next((each for each in found if each.verdict is Verdict.BAD), None)


NO_DRIVER = {"devices": (), "warnings": ("the driver is missing",)}
HIDDEN = {
    "devices": tuple(replace(device, usable=False) for device in GPUS),
    "cuda_visible_devices": "",
}


@pytest.mark.parametrize(
    ("host", "facts", "reason"),
    [
        (EVERY_GPU, {}, None),
        (EVERY_GPU, {"packages": PACKAGES}, None),
        (Host("gpu-a", gpus=()), {"packages": PACKAGES}, None),
        (Host("gpu-a", gpus=()), NO_DRIVER, None),
        (EVERY_GPU, {"devices": ()}, "no GPU"),
        (Host("gpu-a", gpus=("0", "7")), {}, "no GPU 7: it has 0, 1"),
        (Host("gpu-a", gpus=("0",)), NO_DRIVER, "no GPU 0: it has none; the driver is missing"),
        (EVERY_GPU, HIDDEN, "none of its 2 GPUs may be used: CUDA_VISIBLE_DEVICES='' there"),
    ],
)
def test_a_host_without_the_gpus_that_are_asked_for_is_refused_with_why(
    host: Host, facts: dict[str, object], reason: str | None
) -> None:
    problem = refusal(host, **facts)
    assert (problem and problem.text) == reason


def test_a_host_without_a_gpu_is_asked_to_say_so_unless_its_cpus_will_do() -> None:
    problem = refusal(devices=())
    assert problem and problem.hint == "for CPU workers write: gpu-a gpus=none"
    assert refusal(settings=replace(SETTINGS, cpu_fallback=True), devices=()) is None


def test_gpus_without_cupy_are_used_and_doctor_says_how_to_install_it() -> None:
    assert refusal(packages=PACKAGES, cuda_driver="12.4") is None
    facts = replace(FACTS, packages=PACKAGES, cuda_driver="12.4")
    (found,) = [each for each in examine(EVERY_GPU, facts, SETTINGS) if each.check == "cupy"]
    assert found.verdict is Verdict.DOUBTFUL
    assert found.text.startswith("GPUs, but no CuPy in /opt/env/bin/python")
    assert "/opt/env/bin/python -m pip install 'cupy-cuda12x[ctk]'" in found.hint


def test_a_host_with_rapids_keeps_the_dask_that_it_needs_and_says_what_to_install_here() -> None:
    pinned = (("dask", "2026.7.1"), ("distributed", "2026.7.1"), ("numpy", "2.4.0"))
    problem = refusal(packages=(("cudf-cu13", "26.10.0"), *pinned))
    assert problem is not None
    assert problem.hint == (
        "RAPIDS there (cudf-cu13 26.10.0) needs that Dask, so take it here: "
        "pip install dask==2026.7.1 distributed==2026.7.1"
    )
    without_dask = refusal(packages=(("cudf-cu13", "26.10.0"), ("numpy", "2.4.0")))
    assert without_dask is not None
    assert without_dask.hint.startswith("there: ")


def test_a_gpu_that_somebody_uses_is_a_warning_or_a_refusal() -> None:
    process = DeviceProcess(4711, Owner.OTHER, "alice", "python train.py", 2**30)
    busy = (replace(GPUS[0], processes=(process,)), GPUS[1])
    words = "GPU 0 is used by python train.py of alice (pid 4711)"
    facts = replace(FACTS, devices=busy)
    assert refusal(devices=busy) is None
    assert words in checks.warnings(Host("gpu-a"), facts, SETTINGS)
    problem = refusal(settings=replace(SETTINGS, busy="refuse"), devices=busy)
    assert problem is not None and problem.text == words


def test_gpus_that_others_use_are_skipped_and_a_host_with_no_other_is_refused() -> None:
    process = DeviceProcess(4711, Owner.OTHER, "alice", "python train.py", 2**30)
    busy = tuple(replace(device, processes=(process,)) for device in GPUS)
    skip, host, facts = replace(SETTINGS, busy="skip"), Host("gpu-a"), replace(FACTS, devices=busy)
    half = replace(FACTS, devices=(busy[0], GPUS[1]))
    assert [device.label for device in capacity(host, half, skip).devices] == ["1"]
    assert "alice (pid 4711), and left alone" in next(checks.warnings(host, half, skip))
    assert refusal(settings=skip, devices=half.devices) is None
    problem = refusal(settings=skip, devices=facts.devices)
    assert problem is not None and problem.text.count("is used by") == 2


def test_a_gpu_that_this_cluster_has_is_not_lost_to_others_who_come() -> None:
    processes = tuple(
        DeviceProcess(pid, owner, "alice", "python train.py", 2**30)
        for pid, owner in ((4711, Owner.OTHER), (4712, Owner.OURS))
    )
    shared = (replace(GPUS[0], processes=processes), GPUS[1])
    assert refusal(settings=replace(SETTINGS, busy="refuse"), devices=shared) is None
    facts, skip = replace(FACTS, devices=shared), replace(SETTINGS, busy="skip")
    assert len(capacity(Host("gpu-a"), facts, skip).devices) == 2


def test_a_driver_that_does_not_answer_is_not_taken_for_a_machine_without_gpus() -> None:
    silent = {"devices": (), "gpus_known": False, "warnings": ("NVML does not answer",)}
    fallback = replace(SETTINGS, cpu_fallback=True)
    problem = refusal(settings=fallback, **silent)
    assert problem is not None and problem.text == "NVML does not answer"
    assert refusal(Host("gpu-a", gpus=()), settings=fallback, **silent) is None


def test_a_host_without_numpy_is_said_to_have_none() -> None:
    facts = replace(FACTS, packages=PACKAGES[:2])
    host = Host("cpu-a", gpus=())
    assert not [*checks.warnings(host, facts, SETTINGS)]
    shown = [each.text for each in examine(host, facts, SETTINGS)]
    assert any("no numpy" in text for text in shown)
    assert not any("numpy  " in text or text.endswith("numpy ") for text in shown)


def test_another_generation_of_numpy_is_a_warning() -> None:
    facts = replace(FACTS, packages=(*FACTS.packages, ("numpy", "1.26.4")))
    (warning,) = checks.warnings(Host("gpu-a"), facts, SETTINGS)
    assert "numpy 1.26.4 there" in warning


def test_a_host_without_gpus_is_not_told_of_its_missing_driver() -> None:
    facts = replace(FACTS, devices=(), warnings=("no NVIDIA driver here",))
    assert next(checks.warnings(Host("cpu-a"), facts, SETTINGS)) == "no NVIDIA driver here"
    told = checks.warnings(Host("cpu-a", gpus=()), facts, SETTINGS)
    assert "no NVIDIA driver here" not in told


def test_a_machine_that_computes_on_cpus_is_told_of_a_broken_driver_only() -> None:
    fallback = replace(SETTINGS, cpu_fallback=True)
    facts = replace(FACTS, devices=(), warnings=(readings.NO_DRIVER, "it is not loaded"))
    assert [*checks.warnings(Host("localhost"), facts, fallback)] == ["it is not loaded"]
    assert readings.NO_DRIVER in checks.warnings(Host("localhost"), facts, SETTINGS)


def test_a_disk_that_is_nearly_full_is_a_warning_that_doctor_says_once() -> None:
    facts = replace(FACTS, disk_free_bytes=3 * 2**30)
    assert [*checks.warnings(Host("cpu-a", gpus=()), facts, SETTINGS)] == [
        "only 3 GiB free for spilling"
    ]
    found = [each for each in examine(EVERY_GPU, facts, SETTINGS) if "spilling" in each.text]
    assert [(each.check, each.verdict) for each in found] == [("disk", Verdict.DOUBTFUL)]


def test_doctor_says_once_that_a_driver_is_missing() -> None:
    facts = replace(FACTS, devices=(), warnings=("no NVIDIA driver here",))
    found = [each for each in examine(EVERY_GPU, facts, SETTINGS) if "driver" in each.text]
    assert [(each.check, each.verdict) for each in found] == [("gpus", Verdict.BAD)]


def test_doctor_finds_nothing_wrong_with_a_machine_that_may_do_without_gpus() -> None:
    facts, settings = replace(FACTS, devices=()), replace(SETTINGS, cpu_fallback=True)
    found = {each.check: each for each in examine(EVERY_GPU, facts, settings)}
    assert (found["gpus"].verdict, found["gpus"].text) == (Verdict.GOOD, "none: CPU workers")


@pytest.mark.parametrize(
    ("gpus", "chosen"),
    [
        (None, ["0.1", "0.2", "1"]),
        (("mig",), ["0.1", "0.2"]),
        (("mig:1g.18gb",), ["0.1"]),
        (("mig:2g.35gb", "1"), ["0.2", "1"]),
        (("0",), ["0.1", "0.2"]),
        (("GPU-0f",), ["0.1", "0.2"]),
        (("0.2",), ["0.2"]),
        (("MIG-a2",), ["0.2"]),
        (("MIG-a",), ["0.1", "0.2"]),
    ],
)
def test_words_of_gpus_choose_mig_instances(
    gpus: tuple[str, ...] | None, chosen: list[str]
) -> None:
    other = replace(MIG[2], name="NVIDIA H200 MIG 2g.35gb")
    found = checks.chosen_devices(Host("gpu-a", gpus=gpus), (*MIG[:2], other, GPUS[1]))
    assert [device.label for device in found] == chosen


def test_a_host_without_workers_warns_of_hidden_processes_and_not_of_its_packages() -> None:
    facts = replace(FACTS, others_hidden=True, packages=(("numpy", "1.26.4"),))
    (warning,) = checks.warnings(Host("gpu-a"), facts, SETTINGS, workers=False)
    assert warning == checks.OTHERS_HIDDEN
