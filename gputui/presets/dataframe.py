"""A filter, a join of two large tables and a group-by: cuDF on GPUs, pandas on CPUs.

Neither table is sorted or split by customer, so the join shuffles both between the workers. One
expression serves both libraries: only what makes a partition knows which it is. Each row is made
where it is needed from the seed and its own number by integer arithmetic, so that a seed gives the
same tables on the device and on the host, in any number of partitions. Amounts are whole, so the
sums are exact: cuDF, pandas and any cluster find the same result, to the last digit.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gputui.presets import (
    RAPIDS_INSTALL,
    Figure,
    Job,
    Library,
    Machine,
    Memory,
    Outcome,
    Parameter,
    Preset,
    array_module,
)

BYTES_A_ROW = 16
COPIES = 6
"""Of a partition, at the peak of a task."""
ORDERS_A_CUSTOMER = 4
AMOUNTS = 1000
"""How many there are, from 0."""
REGIONS = ("north", "east", "south", "west")

Span = tuple[int, int]
"""First row, and the one after the last."""


@dataclass(frozen=True, slots=True)
class Tables:
    """Orders, and the customers that they are from."""

    library: str
    """cudf, pandas or polars."""
    seed: int
    rows: int
    """Of the orders."""

    @property
    def customers(self) -> int:
        """Rows of the customers."""
        return math.ceil(self.rows / ORDERS_A_CUSTOMER)

    def orders(self, span: Span) -> Any:
        """Return these orders as (customer, amount)."""
        words = self._words("orders", span)
        amount = (words % AMOUNTS).astype("f8")
        words //= AMOUNTS
        words %= max(self.customers, 1)
        return self._frame({"customer": words.view("i8"), "amount": amount})

    def people(self, span: Span) -> Any:
        """Return these customers as (customer, region)."""
        words = self._words("customers", span)
        numbers = array_module(self._arrays).arange(*span, dtype="i8")
        return self._frame({"customer": numbers, "region": (words % len(REGIONS)).astype("i8")})

    @property
    def _arrays(self) -> str:
        return "cupy" if self.library == "cudf" else "numpy"

    def _frame(self, columns: Mapping[str, Any]) -> Any:
        return array_module(self.library).DataFrame(columns)

    def _words(self, table: str, span: Span) -> Any:
        """Return 64 random bits for each row, a function of seed, table and row alone.

        Source: SplitMix64. G. L. Steele, D. Lea, C. H. Flood, "Fast splittable pseudorandom number
        generators", 2014.
        """
        import numpy as np

        own = np.random.SeedSequence(self.seed, spawn_key=tuple(table.encode()))
        start = own.generate_state(1, np.uint64)[0]
        words = array_module(self._arrays).arange(*span, dtype=np.uint64)
        words *= np.uint64(0x9E3779B97F4A7C15)
        words += start
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            words ^= words >> np.uint64(shift)
            words *= np.uint64(factor)
        words ^= words >> np.uint64(31)
        return words


def compute(job: Job) -> Outcome:
    """Join the larger orders with their customers; sum and count them by region."""
    import dask.dataframe as dd

    tables = Tables("cudf" if job.backend == "cupy" else "pandas", job["seed"], job["rows"])
    plain = Tables("pandas", job["seed"], 0)  # the process that holds the job needs no cuDF
    partitions = job["partitions"] or 2 * job.machine.threads
    orders = dd.from_map(tables.orders, spans(tables.rows, partitions), meta=plain.orders((0, 0)))
    people = dd.from_map(
        tables.people, spans(tables.customers, partitions), meta=plain.people((0, 0))
    )
    chosen = orders[orders["amount"] >= job["least"]]
    joined = chosen.merge(people, on="customer", shuffle_method="tasks", broadcast=False)
    parts = joined.map_partitions(sums, meta={"total": "f8", "count": "i8"})
    table = job.compute(parts, "filter, join, group").groupby(level=0).sum()
    regions = tuple(REGIONS[each] for each in table.index)
    totals = tuple(float(each) for each in table["total"])
    rows = [
        {"region": region, "total": total, "count": int(count)}
        for region, total, count in zip(regions, totals, table["count"], strict=True)
    ]
    return Outcome(
        {
            "library": tables.library,
            "rows": tables.rows,
            "customers": tables.customers,
            "regions": rows,
        },
        Figure(
            "bar",
            f"orders of {job['least']:g} and more",
            "sum of amounts",
            labels=regions,
            y=totals,
        ),
    )


def spans(rows: int, partitions: int) -> list[Span]:
    """Return the rows of each partition; at least one row each.

    >>> spans(10, 3)
    [(0, 4), (4, 8), (8, 10)]
    """
    height = max(1, math.ceil(rows / partitions))
    return [(start, min(start + height, rows)) for start in range(0, rows, height)]


def sums(joined: Any) -> Any:
    """Return total and count by region, as pandas."""
    table = joined.groupby("region")["amount"].agg(["sum", "count"])
    table.columns = ["total", "count"]
    return table.to_pandas() if hasattr(table, "to_pandas") else table


def _estimate(values: Mapping[str, Any], machine: Machine) -> Memory:
    partitions = values["partitions"] or 2 * machine.threads
    row = COPIES * BYTES_A_ROW
    needed = math.ceil(row * values["rows"] / max(machine.smallest_bytes, 1))
    return Memory(row * math.ceil(values["rows"] / partitions), f"use partitions ≥ {needed:,}")


PRESET = Preset(
    name="dataframe",
    summary="a filter, a join of two large tables and a group-by: cuDF, or pandas on CPUs",
    parameters=(
        Parameter("rows", int, 100_000_000, "orders", 5_000_000, minimum=1, unit="rows"),
        Parameter("least", float, 500.0, "amount of an order that counts", minimum=0),
        Parameter("partitions", int, None, "auto is two a thread", minimum=1),
        Parameter("seed", int, 0, "of the tables", minimum=0, maximum=2**63 - 1),
    ),
    compute=compute,
    estimate=_estimate,
    requires=(
        Library("pandas", "pip install 'gputui[dataframe]'"),
        Library("cudf", RAPIDS_INSTALL, backends=("cupy",)),
        Library("dask_cudf", RAPIDS_INSTALL, backends=("cupy",)),
    ),
    draws=True,
)
