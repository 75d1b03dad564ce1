"""What a host's facts say against using it."""

from dataclasses import replace
from typing import Any

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
EVERY_GPU, NO_GPU = Host("gpu-a"), Host("gpu-a", gpus=())
FALLBACK, REFUSE, SKIP = {"cpu_fallback": True}, {"busy": "refuse"}, {"busy": "skip"}
NO_DRIVER = {"devices": (), "warnings": ("the driver is missing",)}
NOT_LOADED = {"devices": (), "warnings": (readings.NO_DRIVER, "it is not loaded")}
SILENT = {"devices": (), "gpus_known": False, "warnings": ("NVML does not answer",)}
HIDDEN = {
    "devices": tuple(replace(device, usable=False) for device in GPUS),
    "cuda_visible_devices": "",
}
PROCESS = DeviceProcess(4711, Owner.OTHER, "alice", "python train.py", 2**30)
OURS = replace(PROCESS, pid=4712, owner=Owner.OURS)
BUSY, ALSO_BUSY = (replace(device, processes=(PROCESS,)) for device in GPUS)
HALF, ALL = {"devices": (BUSY, GPUS[1])}, {"devices": (BUSY, ALSO_BUSY)}
SHARED = {"devices": (replace(BUSY, processes=(PROCESS, OURS)), GPUS[1])}
USED, ALSO_USED = (f"GPU {n} is used by python train.py of alice (pid 4711)" for n in (0, 1))
UNSEEN = {"devices": (replace(GPUS[0], memory_used_bytes=60 * 2**30), GPUS[1])}
HOLDS = "60 GiB of GPU 0 are held by processes that are not seen here"
NOT_SHOWN = DeviceProcess(4711, Owner.UNKNOWN, None, None, 60 * 2**30)
NOT_KNOWN = {"devices": (replace(GPUS[0], processes=(NOT_SHOWN,)), GPUS[1])}
DRAWN = {"devices": (replace(GPUS[0], processes=(replace(PROCESS, command="Xorg"),)), GPUS[1])}
WORKING = {"devices": (replace(GPUS[0], utilization_percent=90), GPUS[1])}
OLD_NUMPY = {"packages": (*FACTS.packages, ("numpy", "1.26.4"))}


def refusal(host: Host = EVERY_GPU, wants: Any = (), **facts: object) -> Finding | None:
    found = examine(host, replace(FACTS, **facts), replace(SETTINGS, **dict(wants)))
    return next((each for each in found if each.verdict is Verdict.BAD), None)


@pytest.mark.parametrize(
    ("host", "wants", "facts", "reason"),
    [
        (EVERY_GPU, {}, {}, None),
        (EVERY_GPU, {}, {"packages": PACKAGES, "cuda_driver": "12.4"}, None),
        (NO_GPU, {}, {"packages": PACKAGES}, None),
        (NO_GPU, {}, NO_DRIVER, None),
        (EVERY_GPU, {}, {"devices": ()}, "no GPU"),
        (EVERY_GPU, FALLBACK, {"devices": ()}, None),
        (EVERY_GPU, FALLBACK, SILENT, "NVML does not answer"),
        (NO_GPU, FALLBACK, SILENT, None),
        (Host("gpu-a", gpus=("0", "7")), {}, {}, "no GPU 7: it has 0, 1"),
        (Host("a", gpus=("0",)), {}, NO_DRIVER, "no GPU 0: it has none; the driver is missing"),
        (EVERY_GPU, {}, HIDDEN, "none of its 2 GPUs may be used: CUDA_VISIBLE_DEVICES='' there"),
        (EVERY_GPU, {}, HALF, None),
        (EVERY_GPU, REFUSE, HALF, USED),
        (EVERY_GPU, REFUSE, SHARED, None),
        (EVERY_GPU, SKIP, HALF, None),
        (EVERY_GPU, SKIP, ALL, f"{USED}; {ALSO_USED}"),
        (EVERY_GPU, REFUSE, UNSEEN, HOLDS),
        (EVERY_GPU, REFUSE, NOT_KNOWN, "GPU 0 is used by a process of unknown user (pid 4711)"),
        (EVERY_GPU, REFUSE, DRAWN, None),
        (EVERY_GPU, REFUSE, WORKING, "GPU 0 is 90 % busy"),
    ],
)
def test_a_host_without_the_gpus_that_are_asked_for_is_refused_with_why(
    host: Host, wants: dict[str, object], facts: dict[str, object], reason: str | None
) -> None:
    problem = refusal(host, wants, **facts)
    assert (problem and problem.text) == reason


@pytest.mark.parametrize(
    ("host", "wants", "facts", "begin"),
    [
        (EVERY_GPU, {}, HALF, [USED]),
        (EVERY_GPU, SKIP, HALF, [f"{USED}, and left alone"]),
        (EVERY_GPU, {}, UNSEEN, [HOLDS]),
        (EVERY_GPU, {}, OLD_NUMPY, ["numpy 1.26.4 there"]),
        (EVERY_GPU, {}, NO_DRIVER, ["the driver is missing"]),
        (NO_GPU, {}, NO_DRIVER, []),
        (EVERY_GPU, {}, NOT_LOADED, [readings.NO_DRIVER, "it is not loaded"]),
        (EVERY_GPU, FALLBACK, NOT_LOADED, ["it is not loaded"]),
        (NO_GPU, {}, {"disk_free_bytes": 3 * 2**30}, ["only 3 GiB free for spilling"]),
        (NO_GPU, {}, {"packages": PACKAGES[:2]}, []),
    ],
)
def test_a_host_that_can_be_used_is_warned_about(
    host: Host, wants: dict[str, object], facts: dict[str, object], begin: list[str]
) -> None:
    told = [*checks.warnings(host, replace(FACTS, **facts), replace(SETTINGS, **wants))]
    assert [text[: len(words)] for text, words in zip(told, begin, strict=True)] == begin


def test_a_host_without_a_gpu_is_asked_to_say_so() -> None:
    problem = refusal(devices=())
    assert problem and problem.hint == "for CPU workers write: gpu-a gpus=none"


def test_gpus_without_cupy_are_used_and_doctor_says_how_to_install_it() -> None:
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


def test_gpus_that_others_alone_use_are_skipped() -> None:
    skip = replace(SETTINGS, **SKIP)
    left = [capacity(EVERY_GPU, replace(FACTS, **facts), skip) for facts in (HALF, SHARED)]
    assert [[device.label for device in each.devices] for each in left] == [["1"], ["0", "1"]]


def test_a_host_without_numpy_is_said_to_have_none() -> None:
    shown = [each.text for each in examine(NO_GPU, replace(FACTS, packages=PACKAGES[:2]), SETTINGS)]
    assert any("no numpy" in text for text in shown)
    assert not any("numpy  " in text or text.endswith("numpy ") for text in shown)


@pytest.mark.parametrize(
    ("facts", "word", "check", "verdict"),
    [
        ({"disk_free_bytes": 3 * 2**30}, "spilling", "disk", Verdict.DOUBTFUL),
        (NO_DRIVER, "driver", "gpus", Verdict.BAD),
    ],
)
def test_doctor_says_once_what_is_a_warning_too(
    facts: dict[str, object], word: str, check: str, verdict: Verdict
) -> None:
    found = examine(EVERY_GPU, replace(FACTS, **facts), SETTINGS)
    assert [(each.check, each.verdict) for each in found if word in each.text] == [(check, verdict)]


def test_doctor_finds_nothing_wrong_with_a_machine_that_may_do_without_gpus() -> None:
    facts, settings = replace(FACTS, devices=()), replace(SETTINGS, **FALLBACK)
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
