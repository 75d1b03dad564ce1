"""Move device arrays between workers while everything happens that may.

    python -m tests.gpu.stress --seconds 180 --seed 1 [--kill] [--torch]
    python -m tests.gpu.stress --seconds 180 --seed 1 --gpus 0 --workers-per-gpu 2

Arrays of random sizes, offsets, strides and types, nested at random, are made by tasks that return
with their work still pending on a stream of their own; other workers check every number. Meanwhile
workers give pool blocks back, spill, reuse what was freed at once, and with `--kill` are killed.
At the end nothing may be left mapped, and each worker's device memory is back at its start; several
runs may share the GPUs. Exit status 1 if not.
"""

import argparse
import contextlib
import os
import random
import signal
import sys
import time
import traceback
from typing import Any

import cloudpickle
from distributed import Client, as_completed, wait

from gputui import GPUCluster

BOUND_S = 120
AT_ONCE = 24
SLACK_BYTES = 2**28
KILL_EVERY_S = 35
"""Each worker in turn, so that none dies five times within a minute, which ends its restarts."""


def make(seed: int, torch: bool) -> Any:
    """Return arrays whose numbers all follow from the seed, some of them still being computed."""
    import cupy

    rng = random.Random(seed)
    stream = rng.choice(_streams())
    with stream:
        arrays = [_array(cupy, rng) for _ in range(rng.randint(1, 5))]
        junk = cupy.ones(rng.choice((10, 10**6, 10**7)))
        junk += 1
    if torch:
        stream.synchronize()
        arrays = [_tensor(each) if rng.random() < 0.5 else each for each in arrays]
    del junk
    if rng.random() < 0.1:
        cupy.get_default_memory_pool().free_all_blocks()
    wrap = rng.randrange(3)
    value = {"a": arrays, "b": (arrays[0], "text")} if wrap else arrays
    return [value, {"seed": seed}] if wrap == 2 else value


def _streams() -> Any:
    """Return this process's streams, which live on: CuPy's pool knows a stream by its address.

    Were one destroyed with work pending, the next one at its address would be given memory that
    this work still writes.
    """
    import cupy

    if not hasattr(cupy, "_stress_streams"):
        cupy._stress_streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(3)]
    return cupy._stress_streams


def _array(cupy: Any, rng: random.Random) -> Any:
    size = int(10 ** rng.uniform(0, 7.6))
    dtype = rng.choice(("f8", "f4", "i4", "u1", "c8", "f2"))
    flat = (cupy.arange(size, dtype="u4") * cupy.uint32(rng.getrandbits(31) | 1)).astype("u1")
    flat = flat.astype(dtype)
    offset, step = rng.choice((0, 0, 1, 7)), rng.choice((1, 1, 2, -1))
    array = flat[min(offset, size - 1) :: step]
    if array.size % 4 == 0 and rng.random() < 0.5:
        array = array.reshape(4, -1)
        array = array.T if rng.random() < 0.5 else array
    return array


def _tensor(array: Any) -> Any:
    """Return an array as a tensor of torch's, in memory of its own.

    That is copied on another stream than the array's, which may reuse what is freed here at once.
    """
    import cupy
    import torch

    tensor = torch.as_tensor(cupy.ascontiguousarray(array), device="cuda").clone()
    torch.cuda.current_stream().synchronize()
    return tensor


def differences(value: Any, seed: int, torch: bool) -> list[str]:
    """Return in what a value differs from what the seed makes; then change it, and free it."""
    import cupy

    expected = make(seed, torch)
    cupy.cuda.Device().synchronize()
    found = []
    for index, (got, want) in enumerate(zip(_flat(value), _flat(expected), strict=True)):
        if got.shape != want.shape or got.dtype != want.dtype or not bool((got == want).all()):
            found.append(f"seed {seed}, array {index}: {want.shape} {want.dtype}")
    if random.random() < 0.05:
        cupy.get_default_memory_pool().free_all_blocks()
    return found


def _flat(value: Any) -> list[Any]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return [array for each in value for array in _flat(each)]
    return [value] if hasattr(value, "__cuda_array_interface__") else []


def used_bytes() -> int:
    """Return what this process uses of its device once its pools are empty and nobody maps them.

    What RMM's pool keeps unused does not count: it gives nothing back.
    """
    import cupy
    import pynvml

    from gputui.presets.workers import free_in_rmm
    from gputui.worker.transfers.cuda_ipc import allocations

    cupy.get_default_memory_pool().free_all_blocks()
    if "torch" in sys.modules:
        sys.modules["torch"].cuda.empty_cache()
    allocations.wait(10.0)
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByUUID(os.environ["CUDA_VISIBLE_DEVICES"])
    running = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
    taken = next(int(each.usedGpuMemory) for each in running if each.pid == os.getpid())
    return taken - free_in_rmm()


def everywhere(client: Client, work: Any) -> dict[str, Any]:
    """Run a task on every worker: off its event loop, which others wait for."""
    addresses = list(client.scheduler_info(n_workers=-1)["workers"])
    asked = [client.submit(work, workers=[address], pure=False) for address in addresses]
    return dict(zip(addresses, client.gather(asked), strict=True))


def spill(dask_worker: Any) -> bool:
    """Move one value off the device."""
    return bool(dask_worker.data.make_room())


def main() -> int:
    """Run until the time is over, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=180)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers-per-gpu", type=int, default=1)
    parser.add_argument("--gpus", default="all")
    parser.add_argument("--kill", action="store_true")
    parser.add_argument("--torch", action="store_true")
    options = parser.parse_args()
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    rng = random.Random(options.seed)
    hosts = f"localhost gpus={options.gpus} workers-per-gpu={options.workers_per_gpu}"
    with GPUCluster(hosts, name=f"stress-{os.getpid()}") as cluster, Client(cluster) as client:
        try:
            return stress(client, options, rng)
        except Exception:
            print_state(cluster, client)
            raise


def print_state(cluster: GPUCluster, client: Client) -> None:
    """Print what the workers do, and what they printed last."""
    with contextlib.suppress(Exception):
        for address, tasks in client.processing().items():
            print(address, "has", tasks)
        for address, stacks in client.run(_stacks, on_error="return").items():
            print(f"--- {address}\n{stacks}")
    for name, lines in cluster.get_logs().items():
        print(f"--- {name}\n{lines[-3000:]}", flush=True)


def _stacks() -> str:
    frames = sys._current_frames().values()
    return "\n".join("".join(traceback.format_stack(frame)[-6:]) for frame in frames)


def stress(client: Client, options: argparse.Namespace, rng: random.Random) -> int:
    """Keep the cluster moving arrays; return the exit status."""
    count = len(client.scheduler_info(n_workers=-1)["workers"])
    assert count > 1, "nothing moves on one worker"
    one_round(client, rng, count, options.torch, victim=None)  # loads what stays loaded
    everywhere(client, used_bytes)
    before = everywhere(client, used_bytes)
    started, moved, wrong, kills = time.monotonic(), 0, [], 0
    while (lasted := time.monotonic() - started) < options.seconds:
        due = options.kill and lasted > KILL_EVERY_S * (kills + 0.3)
        wrong += one_round(client, rng, count, options.torch, victim=kills if due else None)
        moved, kills = moved + AT_ONCE, kills + due
    everywhere(client, used_bytes)
    after = everywhere(client, used_bytes)
    most = max(before.values())
    grown = {address: after[address] - before.get(address, most) for address in after}
    print(f"{moved} values, {kills} kills, {len(wrong)} wrong; grown by {sorted(grown.values())}")
    print("\n".join(wrong[:20]))
    return 1 if wrong or max(grown.values()) > SLACK_BYTES else 0


def everybody(client: Client, count: int) -> dict[str, int]:
    """Return the pid of each worker, once all are there: a killed one counts for a moment."""
    ends = time.monotonic() + BOUND_S
    while time.monotonic() < ends:
        answers = client.run(os.getpid, on_error="return")
        pids = {address: pid for address, pid in answers.items() if isinstance(pid, int)}
        if len(pids) == count:
            return pids
        time.sleep(0.2)
    raise TimeoutError(f"{count} workers were not there within {BOUND_S} s: {answers}")


def one_round(
    client: Client, rng: random.Random, count: int, torch: bool, victim: int | None
) -> list[str]:
    """Make values on some workers, check each on another; return what was wrong.

    A victim is killed meanwhile: one of the workers, counted round in the order of their names.
    """
    pids = everybody(client, count)
    known = client.scheduler_info(n_workers=-1)["workers"]
    addresses = sorted(pids, key=lambda address: known[address]["name"])
    seeds = [rng.getrandbits(40) for _ in range(AT_ONCE)]
    anywhere = {"allow_other_workers": True, "pure": False, "retries": 5}
    values, checks = [], []
    for seed in seeds:
        owner, reader = rng.sample(addresses, 2)
        values.append(client.submit(make, seed, torch, workers=[owner], **anywhere))
        checks.append(
            client.submit(differences, values[-1], seed, torch, workers=[reader], **anywhere)
        )
    if victim is not None:
        next(as_completed(checks, timeout=BOUND_S))
        os.kill(pids[addresses[victim % len(addresses)]], signal.SIGKILL)
    elif rng.random() < 0.3:
        client.run(spill, workers=[rng.choice(addresses)])
    wait(checks, timeout=BOUND_S)
    return [line for check in checks for line in check.result()]


if __name__ == "__main__":
    sys.exit(main())
