"""A filter, a join of two large tables and a group-by, in cuDF or pandas.

Neither table is sorted or split by customer, so the join shuffles both between the workers. One
expression serves both libraries: only what makes a partition knows which it is.

Each row is made where it is needed from the seed and its own number by integer arithmetic, so that
a seed gives the same tables on the device and on the host, in any number of partitions. Amounts are
whole, so the sums are exact: every library and any cluster find the same result, to the last digit.
"""

import math
from collections.abc import Mapping
from typing import Any

from gputui.model.frozen import frozen
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
from gputui.presets.random_streams import Rows, cut

BYTES_A_ROW = 16
COPIES = 6  # of a partition, at the peak of a task
ORDERS_A_CUSTOMER = 4
AMOUNTS = 1000  # how many there are, from 0
REGIONS = ("north", "east", "south", "west")


@frozen
class Tables:
    """So many rows of orders, and the customers that they are from, in cudf or pandas."""

    library: str
    seed: int
    rows: int

    @property
    def customers(self) -> int:
        """Rows of the customers."""
        return math.ceil(self.rows / ORDERS_A_CUSTOMER)

    def orders(self, span: Rows) -> Any:
        """Return these orders as (customer, amount)."""
        words = self._words("orders", span)
        amount = (words % AMOUNTS).astype("f8")
        words //= AMOUNTS
        words %= max(self.customers, 1)
        return array_module(self.library).DataFrame(
            {"customer": words.view("i8"), "amount": amount}
        )

    def people(self, span: Rows) -> Any:
        """Return these customers as (customer, region)."""
        words = self._words("customers", span)
        numbers = self._arrays.arange(*span, dtype="i8")
        return array_module(self.library).DataFrame(
            {"customer": numbers, "region": (words % len(REGIONS)).astype("i8")}
        )

    @property
    def _arrays(self) -> Any:
        return array_module("cupy" if self.library == "cudf" else "numpy")

    def _words(self, table: str, span: Rows) -> Any:
        """Return 64 random bits for each row, a function of seed, table and row alone.

        Source: SplitMix64. G. L. Steele, D. Lea, C. H. Flood, "Fast splittable pseudorandom number
        generators", 2014.
        """
        import numpy as np

        own = np.random.SeedSequence(self.seed, spawn_key=tuple(table.encode()))
        words = self._arrays.arange(*span, dtype=np.uint64)
        words *= np.uint64(0x9E3779B97F4A7C15)
        words += own.generate_state(1, np.uint64)[0]
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
    count = job["partitions"] or 2 * job.machine.threads
    orders = dd.from_map(tables.orders, cut((0, tables.rows), count), meta=plain.orders((0, 0)))
    people = dd.from_map(
        tables.people, cut((0, tables.customers), count), meta=plain.people((0, 0))
    )
    chosen = orders[orders["amount"] >= job["least"]]
    joined = chosen.merge(people, on="customer", shuffle_method="tasks", broadcast=False)
    parts = joined.map_partitions(sums, meta={"total": "f8", "count": "i8"})
    table = job.compute(parts, "filter, join, group").groupby(level=0).sum()
    regions: list[dict[str, Any]] = [
        {"region": REGIONS[number], "total": float(total), "count": int(count)}
        for number, total, count in table.sort_index().itertuples()
    ]
    return Outcome(
        {
            "library": tables.library,
            "rows": tables.rows,
            "customers": tables.customers,
            "regions": regions,
        },
        Figure(
            "bar",
            f"orders of {job['least']:g} and more",
            "sum of amounts",
            labels=tuple(each["region"] for each in regions),
            y=tuple(each["total"] for each in regions),
        ),
    )


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
