"""What grows with the number of runs, here and with the same work on plain Dask."""

from dataclasses import dataclass, field
from statistics import linear_regression

import dask.array as da
import psutil
from distributed import Client, LocalCluster

FIRST = 5
"""Samples that are left out: what is imported and cached at first is no growth."""
ROWS = 2_000


@dataclass
class Growth:
    """Sizes after each run."""

    samples: list[dict[str, int]] = field(default_factory=list)

    def add(self, sizes: dict[str, int]) -> None:
        """Note the sizes after one more run."""
        self.samples.append(sizes)

    @property
    def runs(self) -> int:
        """How many runs were seen."""
        return len(self.samples)

    def per_run(self) -> dict[str, float]:
        """Return name → slope over runs, by least squares; nothing for fewer than three."""
        kept = self.samples[FIRST:]
        if len(kept) < 3:
            return {}
        at = range(len(kept))
        return {
            name: linear_regression(at, [sample.get(name, 0) for sample in kept]).slope
            for name in kept[-1]
        }


def plain_growth(runs: int) -> dict[str, float]:
    """Return the growth of a plain scheduler, with a client of its own for each run."""
    growth = Growth()
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster:
        for _ in range(runs):
            with Client(cluster):
                da.random.normal(10, 1, (ROWS, ROWS), chunks=ROWS // 4).sum().compute()
            growth.add({"scheduler: RSS kB": psutil.Process().memory_info().rss // 1024})
    return growth.per_run()


def table(ours: dict[str, float], plain: dict[str, float]) -> str:
    """Return what grew per run, ours and plain Dask's, a line each."""
    lines = [f"{'growth per run':<28}{'gputui':>12}{'plain Dask':>12}"]
    for name, slope in ours.items():
        there = f"{plain[name]:12.2f}" if name in plain else f"{'–':>12}"
        lines.append(f"{name:<28}{slope:12.2f}{there}")
    return "\n".join(lines)
