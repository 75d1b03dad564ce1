"""Each setting of a gputui cluster against Dask's own value of it, one by one.

    python -m tests.benchmarks.settings              # on the GPUs here, or on CPU workers
    python -m tests.benchmarks.settings --only saturation

Two clusters run beside each other, one with gputui's settings and one with a single setting put
back to Dask's; the workloads take turns on them. A ratio above 1 says that gputui's is faster.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

from distributed import Client

from gputui import GPUCluster
from gputui.engine.dask_settings import SETTINGS
from tests.benchmarks.presets import seed_random_sum, seed_svd

REPEATS = 5

DASKS: Mapping[str, Any] = {
    "distributed.scheduler.worker-saturation": 1.1,
    "distributed.worker.profile.enabled": True,
    "distributed.diagnostics.nvml": True,
    "distributed.admin.system-monitor.interval": "500ms",
    "distributed.admin.tick.interval": "20ms",
}
"""Dask's own values (distributed 2026.8) of the settings that may cost or gain speed."""


def main() -> None:
    """Print a line for each setting."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="settings whose name contains this")
    only = parser.parse_args().only
    with GPUCluster(name="ours") as cluster, Client(cluster, set_as_default=False) as ours:
        workloads = _workloads(ours)
        print(f"{'ratio: Dask’s value / gputui’s':<44}" + "".join(f"{w:>22}" for w in workloads))
        for name in filter(lambda each: only in each, DASKS):
            config = json.dumps({name: DASKS[name]})
            with (
                GPUCluster(name="dasks", dask_config_json=config) as other,
                Client(other, set_as_default=False) as theirs,
            ):
                cells = [_ratio(ours, theirs, work) for work in workloads.values()]
            short = name.removeprefix("distributed.")
            print(
                f"{short + f' {DASKS[name]} → {SETTINGS[name]}':<44}" + "".join(cells), flush=True
            )


def _workloads(client: Client) -> dict[str, Callable[[], Any]]:
    """Return what people do, in sizes of a second; each with many more tasks than workers."""
    if any(worker["resources"] for worker in client.scheduler_info(-1)["workers"].values()):
        return {
            "seed's random-sum": lambda: seed_random_sum(150_000),
            "seed's svd": lambda: seed_svd(1_000_000, 1000, 50_000, True),
            "4,000 empty tasks": _empty_tasks,
        }
    return {
        "random-sum": _random_sum,
        "sum with transpose": _with_transpose,
        "4,000 empty tasks": _empty_tasks,
    }


def _empty_tasks() -> None:
    from distributed import get_client

    client = get_client()
    client.gather(client.map(abs, range(4000), pure=False))


def _random_sum() -> None:
    import dask.array as da

    x = da.random.default_rng(0).normal(10, 1, size=(6000, 6000), chunks=500)
    (x + 1)[::2, ::2].sum().compute()


def _with_transpose() -> None:
    import dask.array as da

    x = da.random.default_rng(0).random((4000, 4000), chunks=(200, 4000))
    (x + x.T).sum().compute()


def _timed(client: Client, work: Callable[[], Any]) -> float:
    with client.as_current():
        started = time.perf_counter()
        work()
        return time.perf_counter() - started


def _ratio(ours: Client, theirs: Client, work: Callable[[], Any]) -> str:
    for client in (ours, theirs):
        _timed(client, work)
    pairs = [(_timed(theirs, work), _timed(ours, work)) for _ in range(REPEATS)]
    return _cell(pairs)


def _cell(pairs: list[tuple[float, float]]) -> str:
    """Return the median of the ratios, and the lowest and highest of them."""
    ratios = sorted(theirs / ours for theirs, ours in pairs)
    return f"{statistics.median(ratios):9.2f} ({ratios[0]:.2f}–{ratios[-1]:.2f})"


if __name__ == "__main__":
    main()
