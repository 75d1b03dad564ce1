"""Device arrays spilled to host memory and brought back, next to the card's own pinned rate.

    python -m tests.benchmarks.spilling [--gib 64] [--cudf]

One worker fills its GPU with CuPy arrays, or cuDF frames, of 1 GiB, moves all of them off it, and
uses each again.
"""

import argparse
import time
from typing import Any

from distributed import Client, wait

from gputui import GPUCluster
from gputui.presets.convert import measure

GIB = 2**30
ROUNDS = 3
WAYS = {"out": "host", "back": "device"}
BARS = {"out": 0.2, "back": 0.4}


def main() -> None:
    """Print the rates of each round, and what share they are of the card's."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gib", type=int, default=64)
    parser.add_argument("--cudf", action="store_true")
    options = parser.parse_args()
    count, make = options.gib, frame if options.cudf else filled
    hosts = f"localhost gpus=0 memory={2 * count + 16}GiB"
    with GPUCluster(hosts, device_memory_limit=1.0) as cluster, Client(cluster) as client:
        card = client.submit(measure, "cupy", GIB).result()
        own = {way: card[f"pinned_to_{there}_bytes_per_s"] for way, there in WAYS.items()}
        print({way: f"{rate / 1e9:.1f} GB/s" for way, rate in own.items()}, "from pinned memory")
        for _ in range(ROUNDS):
            kept = [client.submit(make, each, pure=False) for each in range(count)]
            wait(kept)
            keys = [each.key for each in kept]
            for way, work in (("out", spill), ("back", use)):
                [seconds] = client.run(work, keys).values()
                rate = count * GIB / seconds
                share, bar = rate / own[way], BARS[way]
                print(f"{way}: {count} GiB in {seconds:.2f} s, {rate / 1e9:.1f} GB/s,", end=" ")
                print(f"{share:.2f} of the card's (bar {bar})", flush=True)
            right = client.gather([client.submit(is_filled, a, i) for i, a in enumerate(kept)])
            assert all(right)
            del kept


def filled(value: int) -> Any:
    """Return a GiB of a number."""
    import cupy

    return cupy.full(GIB // 8, float(value))


def frame(value: int) -> Any:
    """Return a frame of a GiB of a number, in two columns."""
    import cudf
    import cupy

    return cudf.DataFrame({name: cupy.full(GIB // 16, float(value)) for name in "ab"})


def is_filled(value: Any, number: int) -> bool:
    """Return whether every number is the one that it was made of."""
    same = value == number
    return bool(same.to_cupy().all() if hasattr(same, "to_cupy") else same.all())


def spill(keys: list[Any], dask_worker: Any) -> float:
    """Move everything off the device, and return the seconds that it took."""
    started = time.perf_counter()
    while dask_worker.data.make_room():
        pass
    elapsed_s = time.perf_counter() - started
    assert not dask_worker.data.device_bytes
    return elapsed_s


def use(keys: list[Any], dask_worker: Any) -> float:
    """Bring everything back, and return the seconds that it took."""
    started = time.perf_counter()
    for key in keys:
        dask_worker.data[key]
    elapsed_s = time.perf_counter() - started
    assert dask_worker.data.device_bytes >= len(keys) * GIB
    return elapsed_s


if __name__ == "__main__":
    main()
