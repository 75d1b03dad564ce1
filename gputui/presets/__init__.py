"""Computations worth a cluster, one file each, and the registry that finds them.

A preset is a `Preset` value: a name, typed parameters, and one function that takes a `Job` (the
workers it may use) and returns an `Outcome` (a result, and perhaps a figure and arrays):

    # mine.py: gputui --run ./mine.py:PRESET -p count=100
    from functools import partial
    from gputui.presets import Figure, Job, Outcome, Parameter, Preset, array_module

    def compute(job: Job) -> Outcome:  # runs where you sit
        tasks = job.map(partial(norm, job.backend, job["size"]), range(job["count"]))
        norms = job.results(tasks, "norms")
        figure = Figure("line", "norms", x=tuple(range(len(norms))), y=tuple(norms))
        return Outcome({"largest": max(norms), "norms": norms}, figure)

    def norm(backend: str, size: int, seed: int) -> float:  # on a worker, its GPU for itself
        xp = array_module(backend)  # CuPy there, NumPy on a CPU
        return float(xp.linalg.norm(xp.random.default_rng(seed).random((size, size))))

    PARAMETERS = Parameter("count", int, 8, "matrices"), Parameter("size", int, 1000, "rows")
    PRESET = Preset("mine", "norms", PARAMETERS, compute, draws=True)

`gputui presets new mine` writes it with an estimate of its memory and its test; one of gputui's own
is a file here, and a row of `registry.BUILT_IN`. What it stands on:

**Work.** `job.map` and `job.submit` start tasks, whose arguments may be futures of others;
`job.results` waits and returns their values. `job.on(worker, …)` and `job.each_worker` choose
where. Of a Dask collection `job.compute(x)` brings the values here and `job.persist(x)` leaves them
on the workers; `x.compute()`, `dask.compute` and `Client()` find the cluster, too. Modules next to
your file are found, on every worker.

**Progress.** Each wait names its stage, `job.results(tasks, "drawing")`. The bar shows the futures
that have ended; of one collection, the tasks of its graph. Between waits, say more with
`job.report(RunProgress("sweep", done, total))`. Ctrl-C ends the next wait.

**Result.** `Outcome.result` is what `--json` prints: numbers, texts, lists and dicts of them. NaN
and infinity are the texts "nan", "inf" and "-inf" there. `arrays`, Dask's or NumPy's by name, are
for `--save`; `Preset.arrays` declares the names, `draws` that there is a figure.

**Figure.** `Figure("line", title, y_label, x_label, x=…, y=…)`, as many x as y;
`Figure("bar", title, labels=…, y=…)`, a label for each bar; `Figure("heat", title, labels=…,
matrix=…)`, a label for each row. `logarithmic=True` scales y of a line.

**Memory.** `estimate(values, machine)` returns `Memory(peak_bytes, change)`: the peak of one task.
It is compared with `machine.smallest_bytes`: of the device memory that is free, 85 %; without a
GPU, half of the worker's memory limit; shared by the worker's threads, and by all workers of a
device. A run that does not fit is refused before it starts, with `change`.

**CuPy.** Workers have it, the process that holds the `Job` need not. So give `map_blocks` its
`dtype`, and `meta=numpy.empty((0, 0))`, or Dask would call your function here to find out. Use
`module_of(x)` for the library of an array, and `to_host(x)` before an array is sent to be read.

Examples: of gputui's own, `smoke.py` runs once on every worker, `matmul.py` many tasks,
`dataframe.py` a Dask collection, `transfer.py` on chosen workers. `tests/presets/examples/`, in the
source distribution, has k-means, a blocked Cholesky factorization, conjugate gradients and a
hyper-parameter search with cuML or scikit-learn.

Importing this package, or listing what it holds, loads no Dask, NumPy, CuPy or distributed:
a preset imports what it computes with inside its functions.
"""

from gputui.presets.definition import (
    RAPIDS_INSTALL,
    Figure,
    Library,
    Memory,
    Outcome,
    Parameter,
    ParsedParameters,
    Preset,
    parse,
    refuse_too_many,
)
from gputui.presets.job import (
    Job,
    Machine,
    RunCancelledError,
    RunProgress,
    RunWorker,
    Value,
    array_module,
    module_of,
    to_host,
)
from gputui.presets.registry import BUILT_IN, get, located, names

__all__ = [
    "BUILT_IN",
    "RAPIDS_INSTALL",
    "Figure",
    "Job",
    "Library",
    "Machine",
    "Memory",
    "Outcome",
    "Parameter",
    "ParsedParameters",
    "Preset",
    "RunCancelledError",
    "RunProgress",
    "RunWorker",
    "Value",
    "array_module",
    "get",
    "located",
    "module_of",
    "names",
    "parse",
    "refuse_too_many",
    "to_host",
]
