"""A filter, a join with a small table and a group-by, as polars queries: on GPUs by cuDF.

Every worker draws orders in host memory, which is where polars keeps tables, and runs one lazy
query on them; with `engine="gpu"` polars hands the query's plan to cuDF. The answers are small, and
are added up. Amounts are whole, so both engines find the same sums, in any number of pieces.
"""

import math
import time
from collections.abc import Mapping
from functools import partial
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
)
from gputui.presets.dataframe import REGIONS, Span, Tables, spans

SHOPS = 1_000
PIECE_ROWS = 10_000_000
PEAK_BYTES_A_ROW = 40
"""What drawing or a query holds of its piece at the peak: in host memory, or on the device."""
ENGINE_BYTES = 16 * 2**20
"""The engine's fixed memory: 10 to 23 MB measured with 1 to 16 threads."""

Answer = tuple[dict[int, tuple[float, int]], float]
"""Total and count by region, and the seconds of the query."""


def compute(job: Job) -> Outcome:
    """Sum and count the larger orders by region, and time the queries."""
    tables = Tables("polars", job["seed"], job["rows"])
    pieces = spans(tables.rows, _pieces(job.parameters, job.machine))
    each = partial(answer, job.backend, tables, job["least"])
    answers: list[Answer] = job.results(job.map(each, pieces), "drawing and querying")
    totals: dict[str, float] = {}
    counts: dict[str, int] = {}
    for found, _ in answers:
        for number, (total, count) in found.items():
            region = REGIONS[number]
            totals[region] = totals.get(region, 0.0) + total
            counts[region] = counts.get(region, 0) + count
    regions = [region for region in REGIONS if region in totals]
    return Outcome(
        {
            "engine": "gpu" if job.backend == "cupy" else "cpu",
            "rows": tables.rows,
            "regions": [
                {"region": each, "total": totals[each], "count": counts[each]} for each in regions
            ],
            "query_rows_per_s_each": tables.rows / sum(elapsed_s for _, elapsed_s in answers),
        },
        Figure(
            "bar",
            f"orders of {job['least']:g} and more",
            "sum of amounts",
            labels=tuple(regions),
            y=tuple(totals[each] for each in regions),
        ),
    )


def answer(backend: str, tables: Tables, least: float, span: Span) -> Answer:
    """Draw a piece of the orders, and ask for total and count of each region."""
    import polars as pl

    orders = tables.orders(span)
    shops = pl.DataFrame({"shop": range(SHOPS), "region": [n % len(REGIONS) for n in range(SHOPS)]})
    query = (
        orders.lazy()
        .filter(pl.col("amount") >= least)
        .with_columns(shop=pl.col("customer") % SHOPS)
        .join(shops.lazy(), on="shop")
        .group_by("region")
        .agg(total=pl.col("amount").sum(), count=pl.len())
    )
    engine = _gpu_engine() if backend == "cupy" else "streaming"
    started = time.perf_counter()
    table = query.collect(engine=engine)
    elapsed_s = time.perf_counter() - started
    return {region: (total, count) for region, total, count in table.iter_rows()}, elapsed_s


def _gpu_engine() -> Any:
    """Return polars' engine on the worker's device, in the memory that the worker uses.

    By default it takes 80 % of the device, and silently runs unsupported queries on the CPU.
    Source: cudf_polars 26.10, `callback.default_memory_resource`.
    """
    import polars as pl
    from rmm import mr

    return pl.GPUEngine(
        memory_resource=mr.get_current_device_resource(), raise_on_fail=True, executor="in-memory"
    )


def _pieces(values: Mapping[str, Any], machine: Machine) -> int:
    return max(machine.threads, math.ceil(int(values["rows"]) / PIECE_ROWS))


def _estimate(values: Mapping[str, Any], machine: Machine) -> Memory:
    piece = math.ceil(values["rows"] / _pieces(values, machine))
    return Memory(ENGINE_BYTES + PEAK_BYTES_A_ROW * piece, "use fewer rows")


PRESET = Preset(
    name="polars",
    summary="a filter, a join and a group-by as polars queries: on GPUs by cuDF, or on CPUs",
    parameters=(
        Parameter("rows", int, 100_000_000, "orders", 5_000_000, minimum=1, unit="rows"),
        Parameter("least", float, 500.0, "amount of an order that counts", minimum=0),
        Parameter("seed", int, 0, "of the orders", minimum=0, maximum=2**63 - 1),
    ),
    compute=compute,
    estimate=_estimate,
    requires=(
        Library("polars", "pip install 'gputui[polars]'"),
        Library("cudf_polars", RAPIDS_INSTALL, backends=("cupy",)),
    ),
    units={"query_rows_per_s_each": "/s"},
    draws=True,
)
