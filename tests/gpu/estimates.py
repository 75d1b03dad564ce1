"""What presets say that they take of a device, and what they took: `python -m tests.gpu.estimates`.

Each runs on one GPU and on two, once to have everything compiled and once more. The peak is that of
what is in use; what CuPy's pool keeps for later it gives back where memory runs out. What a library
takes for itself (cuBLAS, cuSOLVER) neither knows.
The bar is that of the tests on CPUs: 0.9 to 2 times the peak. Exit status 1 where one is missed.
"""

import sys
import time
from typing import Any

from distributed import Client

from gputui import GPUCluster, presets
from gputui.presets import Machine
from gputui.runs import execution

GIB = 2**30
LITTLE = 2**25
"""What no device lacks: less needs no estimate."""
BOUND_S = 20.0
CASES: list[tuple[str, dict[str, Any]]] = [
    ("svd", {"rows": 2_000_000, "cols": 1000}),
    ("svd", {"rows": 2_000_000, "cols": 1000, "vectors": True}),
    ("svd", {"rows": 2_000_000, "cols": 500, "check": True}),
    ("svd", {"rows": 2_000_000, "cols": 500, "method": "tsqr"}),
    ("random-sum", {"size": 100_000}),
    ("mean", {"rows": 4_000, "cols": 500_000}),
    ("mean", {"rows": 4_000, "cols": 500_000, "axis": "0"}),
    ("mean", {"rows": 4_000, "cols": 500_000, "axis": "1", "reduction": "var"}),
    ("matmul", {"size": 16_384}),
    ("matmul", {"size": 16_384, "dtype": "float32"}),
    ("convert", {"mebibytes": 512}),
    ("transfer", {"mebibytes": 512}),
    ("torch", {"size": 4_096}),
    ("smoke", {"size": 200_000_000}),
    ("dataframe", {"rows": 50_000_000}),
]


def main() -> None:
    """Print a row for each case, and how many are out of bounds."""
    names, missed = sys.argv[1:], 0
    print(
        "| preset | parameters | GPUs | peak | estimate | of the peak |\n|---|---|---|---|---|---|"
    )
    for gpus in ("0", "0,1"):
        count = len(gpus.split(","))
        with GPUCluster(f"localhost gpus={gpus}") as cluster, Client(cluster) as client:
            client.wait_for_workers(count)
            for name, given in CASES:
                if (names and name not in names) or (name == "transfer" and count == 1):
                    continue
                try:
                    peak, estimate = tried(client, name, given, count)
                except Exception as error:
                    words = f"{type(error).__name__}: {error}".splitlines()[0][:90]
                    print(f"| {name} | {shown(given)} | {count} | – | – | {words} |", flush=True)
                    continue
                share = estimate / max(peak, 1)
                missed += max(peak, estimate) > LITTLE and not 0.9 <= share <= 2
                print(f"| {name} | {shown(given)} | {count} |", end=" ")
                print(
                    f"{peak / GIB:.2f} GiB | {estimate / GIB:.2f} GiB | {share:.2f} |", flush=True
                )
    print(f"{missed} out of bounds")
    sys.exit(bool(missed))


def shown(given: dict[str, Any]) -> str:
    """Return parameters as one writes them.

    >>> shown({"rows": 5, "axis": "0"})
    'rows=5 axis=0'
    """
    return " ".join(f"{name}={value}" for name, value in given.items())


def tried(client: Client, name: str, given: dict[str, Any], workers: int) -> tuple[int, int]:
    """Return the largest peak of a device, and the estimate of it."""
    preset = presets.get(name)
    assert preset.estimate
    execution.execute(client, preset, given, backend="cupy")
    until_nothing_is_held(client)
    client.run(empty)
    before = client.run(held)
    execution.execute(client, preset, given, backend="cupy")
    after = client.run(held)
    smallest = min(room for _, room in before.values())
    machine = Machine("cupy", workers=workers, threads=workers, smallest_bytes=smallest)
    values = presets.parse(preset, given).complete("cupy")
    peak = max(after[each][0] - before[each][0] for each in after)
    return peak, preset.estimate(values, machine).peak_bytes


def until_nothing_is_held(client: Client) -> None:
    """Wait until the workers hold no results of the last run."""
    end = time.monotonic() + BOUND_S
    while any(client.has_what().values()) or any(client.processing().values()):
        assert time.monotonic() < end
        time.sleep(0.02)
    time.sleep(0.2)  # what a worker was told to forget is freed a moment later


def empty(dask_worker: Any = None) -> None:
    """Count from here on: from what is held now."""
    import gc

    import cupy

    gc.collect()
    if not hasattr(dask_worker, "peak_bytes"):
        allocate, pool = cupy.cuda.get_allocator(), cupy.get_default_memory_pool()

        def counted(size: int) -> Any:
            memory = allocate(size)
            dask_worker.peak_bytes = max(dask_worker.peak_bytes, pool.used_bytes())
            return memory

        cupy.cuda.set_allocator(counted)
    dask_worker.peak_bytes = cupy.get_default_memory_pool().used_bytes()
    if by_rmm := counted_by_rmm():
        by_rmm.push_counters()
    if torch := sys.modules.get("torch"):
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def held(dask_worker: Any = None) -> tuple[int, int]:
    """Return the most bytes that were held since `empty`, and what the device has free."""
    import cupy

    total = dask_worker.peak_bytes
    if torch := sys.modules.get("torch"):
        total += torch.cuda.max_memory_allocated()
    if counted := counted_by_rmm():
        total += counted.allocation_counts.peak_bytes
    return total, cupy.cuda.Device().mem_info[0]


def counted_by_rmm() -> Any:
    """Return RMM's resource that counts, where this worker uses it."""
    rmm = sys.modules.get("rmm")
    resource = rmm.mr.get_current_device_resource() if rmm else None
    return resource if hasattr(resource, "allocation_counts") else None


if __name__ == "__main__":
    main()
