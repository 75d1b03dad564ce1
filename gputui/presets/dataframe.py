"""pandas partitions to cuDF with `map_partitions(cudf.from_pandas)`: filter, join, group-by.

Where the workers have cuDF the partitions move to the GPU and all else is the same expression;
without it, pandas computes. Orders are made up in fixed logical pieces of 100,000 rows, each
with its own stream, so a seed gives the same table in any number of partitions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from gputui.presets import Figure, Library, Machine, Memory, Outcome, Parameter, Preset
from gputui.presets.job import Job

PIECE = 100_000
"""Rows of a logical piece; part of what a seed means."""
BYTES_A_ROW = 24
SHOPS = 12


def compute(job: Job) -> Outcome:
    """Sum the larger orders of each region, and count them."""
    import dask.dataframe as dd

    pieces = math.ceil(job["rows"] / PIECE)
    partitions = min(pieces, job["partitions"] or 2 * job.machine.threads)
    per_partition = math.ceil(pieces / partitions)
    starts = [i * per_partition for i in range(math.ceil(pieces / per_partition))]
    tasks = [(job["seed"], job["rows"], start, start + per_partition) for start in starts]
    orders = dd.from_map(make_orders, tasks, meta=make_orders((0, 0, 0, 0)))
    uses_cudf = job.backend == "cupy" and "cudf" in job.libraries
    if uses_cudf:
        orders = orders.map_partitions(to_device, meta=orders._meta)
    parts = orders.map_partitions(joined_sums, job["least"], meta={"total": "f8", "count": "i8"})
    table = job.compute(parts, "filter, join, group").groupby(level=0).sum()
    regions, totals = [str(each) for each in table.index], [float(each) for each in table["total"]]
    rows = [
        {"region": region, "total": total, "count": int(count)}
        for region, total, count in zip(regions, totals, table["count"], strict=True)
    ]
    return Outcome(
        {"library": "cudf" if uses_cudf else "pandas", "rows": job["rows"], "regions": rows},
        Figure(
            "bar",
            f"orders of {job['least']} and more",
            "sum",
            labels=tuple(regions),
            y=tuple(totals),
        ),
    )


def make_orders(task: tuple[int, int, int, int]) -> Any:
    """Return (shop, amount) of pieces `first` to `last` of the first `rows` rows, as pandas."""
    import numpy as np
    import pandas as pd

    seed, rows, first, last = task
    shops, amounts = [np.empty(0, "i8")], [np.empty(0)]
    for piece in range(first, min(last, math.ceil(rows / PIECE))):
        own = np.random.SeedSequence(seed, spawn_key=(piece,))  # apart for seeds of any length
        stream = np.random.default_rng(own)
        height = min(PIECE, rows - piece * PIECE)
        shops.append(stream.integers(0, SHOPS, PIECE)[:height])
        amounts.append(stream.integers(0, 1000, PIECE)[:height].astype("f8"))
    return pd.DataFrame({"shop": np.concatenate(shops), "amount": np.concatenate(amounts)})


def shops() -> Any:
    """Return the table that orders are joined with: the region of each shop."""
    import pandas as pd

    regions = ["north", "east", "south", "west"]
    return pd.DataFrame({"shop": range(SHOPS), "region": [regions[i % 4] for i in range(SHOPS)]})


def to_device(frame: Any) -> Any:
    """Return the partition in cuDF: `map_partitions(cudf.from_pandas)`."""
    import cudf

    return cudf.from_pandas(frame)


def joined_sums(orders: Any, least: float) -> Any:
    """Return total and count of the orders of at least so much, by region, as pandas."""
    others = shops()
    on_device = type(orders).__module__.startswith("cudf")
    chosen = orders[orders["amount"] >= least]
    joined = chosen.merge(to_device(others) if on_device else others, on="shop")
    groups = joined.groupby("region")["amount"]
    table = groups.agg(["sum", "count"])
    table.columns = ["total", "count"]
    return table.to_pandas() if on_device else table


def _estimate(values: Mapping[str, Any], machine: Machine) -> Memory:
    partitions = values["partitions"] or 2 * machine.threads
    partition = BYTES_A_ROW * max(PIECE, values["rows"] // partitions)
    needed = math.ceil(4 * BYTES_A_ROW * values["rows"] / max(machine.smallest_bytes, 1))
    return Memory(4 * partition, f"use partitions ≥ {needed:,}")


PRESET = Preset(
    name="dataframe",
    summary="a filter, a join and a group-by on cuDF partitions, or pandas without it",
    parameters=(
        Parameter("rows", int, 100_000_000, "orders", 5_000_000, minimum=1, unit="rows"),
        Parameter("least", float, 500.0, "amount of an order that counts", minimum=0),
        Parameter("partitions", int, None, "auto is two a thread", minimum=1),
        Parameter("seed", int, 0, "of the orders", minimum=0, maximum=2**63 - 1),
    ),
    compute=compute,
    estimate=_estimate,
    requires=(Library("pandas", "pip install 'gputui[dataframe]'"),),
    draws=True,
)
