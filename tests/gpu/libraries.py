"""Libraries that bring a communicator of their own, on workers of one GPU each.

    python -m tests.gpu.libraries [--gpus 0,1] [NAME…]

`cuml` fits cuml.dask's KMeans over raft-dask, `xgboost` trains on CuPy arrays on the devices, and
`ddp` trains a torch model with DistributedDataParallel over NCCL. Each says what it found and
whether that is right; those that are not installed are named. Exit status 1 if any failed.
"""

import argparse
import importlib.util
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

from distributed import Client

from gputui import GPUCluster
from gputui.presets import to_host

CENTRES, COLUMNS = 8, 16
ROWS = 400_000
STEPS = 60
BOUND_S = 120


def main() -> None:
    """Run each that is named, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpus", default="0,1")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(TRIED))
    options = parser.parse_args()
    failed = False
    for name in options.names or TRIED:
        needs, work = TRIED[name]
        if missing := [each for each in needs if importlib.util.find_spec(each) is None]:
            print(f"{name}: not tried, without {', '.join(missing)}", flush=True)
            continue
        hosts = f"localhost gpus={options.gpus}"
        with GPUCluster(hosts, name=f"libraries-{name}") as cluster, Client(cluster) as client:
            client.wait_for_workers(len(options.gpus.split(",")))
            started = time.perf_counter()
            try:
                found = work(client)
            except Exception:
                failed = True
                found = f"failed\n{traceback.format_exc()}"
            print(f"{name}: {found} ({time.perf_counter() - started:.1f} s)", flush=True)
    sys.exit(failed)


def cuml_kmeans(client: Client) -> str:
    """Find the centres that points were scattered around."""
    import numpy as np
    from cuml.dask.cluster import KMeans

    centres = 10.0 * np.eye(CENTRES, COLUMNS)
    points = scattered_around(centres)
    model = KMeans(client=client, n_clusters=CENTRES, random_state=0, n_init=4).fit(points)
    found = np.asarray(to_host(model.cluster_centers_))
    apart = np.linalg.norm(found[:, None] - centres[None], axis=2).min(axis=0).max()
    assert apart < 0.1, apart
    return f"every centre found, {apart:.3f} from where it is"


def scattered_around(centres: Any) -> Any:
    """Return points of the devices as a Dask array of (rows, columns)."""
    import dask.array as da

    numbers = da.arange(ROWS, chunks=ROWS // 8)
    chunks = (*numbers.chunks, (COLUMNS,))
    return da.map_blocks(
        scattered, numbers, centres, new_axis=1, chunks=chunks, dtype="f4"
    ).persist()


def scattered(numbers: Any, centres: Any) -> Any:
    """Return a point of the device for each number, around one of the centres."""
    import cupy

    random = cupy.random.RandomState(int(numbers[0]))
    which = cupy.asarray(numbers) % len(centres)
    noise = random.standard_normal((len(numbers), centres.shape[1]))
    return (cupy.asarray(centres)[which] + noise).astype("f4")


def xgboost_on_devices(client: Client) -> str:
    """Learn a function of two columns out of many."""
    import numpy as np
    import xgboost.dask

    x = scattered_around(np.zeros((1, COLUMNS)))
    y = (x[:, 0] * x[:, 1] > 0).astype("f4").persist()
    data = xgboost.dask.DaskQuantileDMatrix(client, x, y)
    options = {"device": "cuda", "tree_method": "hist", "objective": "binary:logistic"}
    model = xgboost.dask.train(
        client, options | {"eval_metric": "error"}, data, num_boost_round=40, evals=[(data, "own")]
    )
    error = float(model["history"]["own"]["error"][-1])
    assert error < 0.05, error
    return f"{error:.4f} of the rows wrong after 40 rounds"


def torch_ddp(client: Client) -> str:
    """Train on every worker's own samples; the weights must be the same everywhere, and right."""
    workers = sorted(client.scheduler_info(n_workers=-1)["workers"])
    store = client.submit(free_address, workers=[workers[0]]).result()
    futures = [
        client.submit(train, store, rank, len(workers), workers=[each], pure=False)
        for rank, each in enumerate(workers)
    ]
    found = client.gather(futures)
    devices = {device for device, *_ in found}
    assert len(devices) == len(workers), devices
    sums = {total for _, total, _ in found}
    assert len(sums) == 1, sums
    errors = [error for *_, error in found]
    assert max(errors) < 0.01, errors
    return f"{len(workers)} ranks on {len(devices)} devices end with the same weights"


def free_address() -> str:
    """Return where the first rank's store can listen."""
    import socket

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return f"tcp://127.0.0.1:{listener.getsockname()[1]}"


def train(store: str, rank: int, ranks: int) -> tuple[str, float, float]:
    """Return this rank's device, the sum of its weights, and how far they are off."""
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    dist.init_process_group("nccl", init_method=store, rank=rank, world_size=ranks)
    try:
        torch.manual_seed(rank)
        wanted = torch.arange(1.0, COLUMNS + 1, device="cuda") / COLUMNS
        model = DistributedDataParallel(torch.nn.Linear(COLUMNS, 1, bias=False).cuda())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
        for _ in range(STEPS):
            x = torch.randn(4096, COLUMNS, device="cuda")
            loss = (model(x).squeeze(1) - x @ wanted).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        [weights] = [each.detach().squeeze(0) for each in model.parameters()]
        device = str(torch.cuda.get_device_properties(0).uuid)
        return device, float(weights.double().sum()), float((weights - wanted).abs().max())
    finally:
        dist.destroy_process_group()


TRIED: dict[str, tuple[tuple[str, ...], Callable[[Client], str]]] = {
    "ddp": (("torch",), torch_ddp),
    "cuml": (("cuml", "raft_dask"), cuml_kmeans),
    "xgboost": (("xgboost",), xgboost_on_devices),
}
"""Name → what it needs, and what runs it."""


if __name__ == "__main__":
    main()
