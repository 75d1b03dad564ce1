"""What presets say that they take, next to what the processes of their workers took."""

import importlib
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from distributed import Client, LocalCluster

from gputui import presets
from gputui.presets import Machine, random_sum
from gputui.runs import execution

BOUND_S = 20.0
ROOM = 2**30
"""Of a task, on workers of 2 GiB: what the estimates of the cases below leave unused."""

IMPORTED = ("dask.array", "dask.dataframe")

CASES: list[tuple[str, dict[str, Any]]] = [
    ("svd", {"rows": 160_000, "cols": 50, "chunk_rows": 80_000}),
    ("svd", {"rows": 160_000, "cols": 50, "chunk_rows": 80_000, "vectors": True}),
    ("svd", {"rows": 160_000, "cols": 50, "chunk_rows": 80_000, "check": True}),
    ("svd", {"rows": 160_000, "cols": 50, "chunk_rows": 80_000, "method": "tsqr"}),
    ("svd", {"rows": 1_600, "cols": 800, "chunk_rows": 800}),
    ("mean", {"rows": 8, "cols": 2_000_000}),
    ("mean", {"rows": 8, "cols": 2_000_000, "axis": "1", "reduction": "var"}),
    ("mean", {"rows": 4_000_000, "cols": 2, "axis": "1", "reduction": "std"}),
    ("mean", {"rows": 32, "cols": 500_000, "axis": "0"}),
    ("mean", {"rows": 32, "cols": 500_000, "axis": "0", "reduction": "std"}),
    ("matmul", {"size": 2_048, "block": 1_024}),
    ("matmul", {"size": 3_000, "block": 1_500, "dtype": "float32"}),
    ("convert", {"mebibytes": 32}),
    ("transfer", {"mebibytes": 32}),
    ("dataframe", {"rows": 1_000_000, "partitions": 2}),
    ("smoke", {"size": 2_000_000}),
]
EVERY_TIME = [CASES[0], CASES[7], CASES[8], CASES[11], CASES[13], CASES[14]]
"""One of each kind; `pytest -m long` has the rest."""


@pytest.fixture(scope="module", params=[1, 2], ids=["1 worker", "2 workers"])
def alone(request: pytest.FixtureRequest) -> Iterator[Client]:
    """Workers of one thread in this process, which has imported all that tasks use."""
    for module in IMPORTED:
        importlib.import_module(module)
    with (
        LocalCluster(
            n_workers=request.param,
            threads_per_worker=1,
            processes=False,
            memory_limit="2GiB",
            dashboard_address=":0",
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


def _wait_until_nothing_is_held(client: Client) -> None:
    end = time.monotonic() + BOUND_S
    while any(client.has_what().values()) or any(client.processing().values()):
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("name", "given"),
    [
        pytest.param(
            *case, marks=[pytest.mark.long] * (case not in EVERY_TIME), id=f"{case[0]}-{case[1]}"
        )
        for case in CASES
    ],
)
def test_an_estimate_is_the_peak_or_up_to_twice_that(
    alone: Client, name: str, given: dict[str, Any]
) -> None:
    workers = len(alone.has_what())
    if (name == "transfer") != (workers == 2):
        pytest.skip("between two workers, and only that")
    preset = presets.get(name)
    _wait_until_nothing_is_held(alone)
    tracemalloc.start()
    try:
        execution.execute(alone, preset, given, backend="numpy")
        peak = tracemalloc.get_traced_memory()[1] / workers
    finally:
        tracemalloc.stop()
    assert preset.estimate
    machine = Machine("numpy", workers=workers, threads=workers, smallest_bytes=ROOM)
    estimate = preset.estimate(presets.parse(preset, given).complete("numpy"), machine).peak_bytes
    assert 0.9 * peak <= estimate <= 2 * peak, peak


def peak_of(call: Callable[[], object]) -> int:
    """Return the peak of a call: the least of three, without what other threads take meanwhile."""
    call()
    peaks = []
    for _ in range(3):
        tracemalloc.start()
        try:
            call()
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    return min(peaks)


def test_the_estimate_of_random_sum_is_what_a_task_takes() -> None:
    """It is too little to be found next to what Dask takes for itself."""
    preset = presets.get("random-sum")
    values = presets.parse(preset, {"size": 4_000, "tasks": 1}).complete("numpy")
    peak = peak_of(lambda: random_sum.add_tiles("numpy", 4_000, 0, (0, 16)))
    assert preset.estimate
    estimate = preset.estimate(values, Machine("numpy", 1, 1, ROOM)).peak_bytes
    assert 0.9 * peak <= estimate <= 2 * peak, peak


@pytest.mark.parametrize("size", [1_024, 2_048, 3_072])
def test_the_estimate_of_torch_is_what_the_process_takes(size: int) -> None:
    """Its allocations are its own: a process that has used them shows them."""
    pytest.importorskip("torch")
    code = f"""
from pathlib import Path
from gputui.presets.torch import train

def kibibytes(field):
    status = Path("/proc/self/status").read_text()
    return int(status.partition(f"{{field}}:")[2].split()[0])

train("numpy", 64, 1, 0)
Path("/proc/self/clear_refs").write_text("5")  # its peak from here on, see proc(5)
before = kibibytes("VmRSS")
train("numpy", {size}, 1, 0)
print(kibibytes("VmHWM") - before)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    peak = int(done.stdout) * 1024
    estimate = presets.get("torch").estimate
    assert estimate
    found = estimate({"size": size}, Machine("numpy", 1, 1, ROOM)).peak_bytes
    assert 0.9 * peak <= found <= 2 * peak, peak
