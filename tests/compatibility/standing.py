"""A pytest plugin: a standing cluster of each kind, on which Dask's own suites compute.

`COMPATIBILITY_RESULTS=FILE pytest -p tests.compatibility.standing --pyargs dask.bag.tests` runs
each test on a LocalCluster and on a GPUCluster, right after each other, so that a busy machine is
as busy for both. Dask's suites name the scheduler "sync" nearly everywhere; here that is the
cluster, too, so that what they compute is computed there.
"""

import functools
import inspect
import json
import os
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import dask.base
import pytest
from distributed import Client, LocalCluster
from distributed.client import _set_global_client

from gputui import GPUCluster
from tests.compatibility.kinds import KINDS, kind_of, without_kind

HOSTS = "localhost gpus=none"
ON_THE_CLUSTER = ("sync", "synchronous", "single-threaded", "threads", "threading")

ROUNDS = 64
"""Round r has the tests r, r + 64, r + 128 … of every module."""

CLOSES_ALL = ("gen_cluster", "distributed.utils_test")
"""A decorator, and where fixtures are from, that at a test's end close every cluster there is."""

_open: dict[str, ExitStack] = {}
_clients: dict[str, Client] = {}
_minutes = float(os.environ.get("COMPATIBILITY_MINUTES", "inf"))
_started = time.monotonic()


@contextmanager
def cluster(kind: str | None = None, **keywords: Any) -> Iterator[Any]:
    """Hold two workers with a thread each, unless the keywords say else."""
    with tempfile.TemporaryDirectory(prefix="gt-") as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", folder)
        size = {"n_workers": 2, "threads_per_worker": 1, "memory_limit": "2GiB"} | keywords
        if (kind or os.environ.get("COMPATIBILITY_CLUSTER")) == "LocalCluster":
            with LocalCluster(**size, dashboard_address="127.0.0.1:0") as held:
                yield held
        else:
            with own_cluster(**size) as held:
                yield held


def own_cluster(*, processes: bool = True, **keywords: Any) -> GPUCluster:
    """Make the cluster that stands for a LocalCluster; its workers are processes always."""
    return GPUCluster(HOSTS, **keywords)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Have each test run on either kind."""
    metafunc.fixturenames.append("standing_kind")
    metafunc.parametrize("standing_kind", KINDS, indirect=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order the tests by rounds; drop those that are slow or use a network."""
    unfit = ("slow", "network")
    seen: Counter[str] = Counter()
    ordered: dict[str, tuple[int, list[pytest.Item]]] = {}
    for item in items:
        if any(map(item.get_closest_marker, unfit)) or _closes_all(item):
            continue
        module, name = item.nodeid.partition("::")[0], without_kind(item.nodeid)
        if name not in ordered:
            ordered[name] = (seen[module] % ROUNDS, [])
            seen[module] += 1
        ordered[name][1].append(item)
    pairs = [pair for _, pair in sorted(ordered.values(), key=lambda each: each[0])]
    for number, pair in enumerate(pairs):
        pair.sort(key=lambda item: kind_of(item.nodeid), reverse=number % 2 == 0)
    items[:] = [item for pair in pairs for item in pair]
    _write({"tests": len(pairs), "rounds": Counter(number for number, _ in ordered.values())})


def client_of(kind: str) -> Client:
    """Return the client of the standing cluster, which stands again if a test closed it."""
    if kind in _clients and _clients[kind].status == "running":
        return _clients[kind]
    close(kind)
    _open[kind] = stack = ExitStack()
    held = stack.enter_context(cluster(kind))
    _clients[kind] = stack.enter_context(Client(held, set_as_default=False))
    _write({"kind": kind, "opened": time.monotonic() - _started})
    return _clients[kind]


def close(kind: str) -> None:
    """Close a standing cluster; one that does not close is noted, and left."""
    try:
        _open.pop(kind, ExitStack()).close()
    except Exception as error:
        _write({"kind": kind, "not_closed": repr(error)})


@pytest.fixture(autouse=True)
def standing_kind(request: pytest.FixtureRequest) -> Iterator[None]:
    """Make a cluster's client Dask's default, and what computes without any."""
    client = client_of(request.param)
    _set_global_client(client)
    dask.base.named_schedulers.update(dict.fromkeys(ON_THE_CLUSTER, client.get))
    with client.as_current():
        yield


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note how each part of a test went, at once: a suite may take hours."""
    test, kind = without_kind(report.nodeid), kind_of(report.nodeid)
    said = str(report.longrepr)[-2000:] if report.failed else ""
    _write({"test": test, "kind": kind, "when": report.when, "outcome": report.outcome}
           | {"elapsed_s": report.duration, "said": said})  # fmt: skip


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Stop between two tests when the time is over."""
    another = nextitem is None or without_kind(nextitem.nodeid) != without_kind(item.nodeid)
    if another and time.monotonic() - _started > 60 * _minutes:
        item.session.shouldstop = "the time is over"


def pytest_sessionfinish() -> None:
    """Note how much each scheduler did: a suite that never asks it shows nothing."""
    for kind in KINDS:
        counted = client_of(kind).run_on_scheduler(
            lambda dask_scheduler: dask_scheduler.transition_counter
        )
        _write({"kind": kind, "transitions": counted})
        close(kind)


_source = functools.cache(inspect.getsource)


def _closes_all(item: Any) -> bool:
    decorator, module = CLOSES_ALL
    fixtures = [each for some in item._fixtureinfo.name2fixturedefs.values() for each in some]
    return decorator in _source(item.function) or any(
        each.func.__module__ == module for each in fixtures
    )


def _write(record: dict[str, Any]) -> None:
    with Path(os.environ["COMPATIBILITY_RESULTS"]).open("a") as file:
        file.write(f"{json.dumps(record)}\n")
