"""RMM as a worker sets it up, on a stand-in for its module: this machine has no device."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import dask
import pytest

from gputui.presets.workers import free_in_rmm
from gputui.worker import device
from gputui.worker.device import ALIGNMENT, FIRST_BYTES, Bounded, Device, use_rmm
from gputui.worker.transfers.cuda_ipc import Allocations
from gputui.worker.worker import why_not_started
from tests.agent.driving import fork_order, how_it_ended

GIB = 2**30
TOTAL, LIMIT = 80 * GIB, 76 * GIB


class Resource:
    """A resource over another, with the arguments that RMM 26.10 takes, and no others."""

    takes: tuple[str, ...] = ()

    def __init__(self, *upstream: Any, **options: int) -> None:
        assert set(options) <= set(self.takes)
        self.upstream, self.options = upstream, options

    def get_upstream(self) -> Any:
        return self.upstream[0]


class Callback(Resource):
    pass


class Async(Resource):
    takes = ("initial_pool_size", "release_threshold", "enable_ipc")


class Limiting(Resource):
    takes = ("allocation_limit",)


class Pool(Resource):
    takes = ("initial_pool_size",)

    def pool_size(self) -> int:
        return self.options["initial_pool_size"]


class Failing(Resource):
    pass


class Statistics(Resource):
    allocation_counts = SimpleNamespace(current_bytes=GIB, peak_bytes=4 * GIB)


@pytest.fixture
def rmm(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A module whose current resource is `mr.current`."""
    mr = SimpleNamespace(
        CallbackMemoryResource=Callback,
        CudaAsyncMemoryResource=Async,
        LimitingResourceAdaptor=Limiting,
        PoolMemoryResource=Pool,
        FailureCallbackResourceAdaptor=Failing,
        StatisticsResourceAdaptor=Statistics,
        get_current_device_resource=lambda: mr.current,
        set_current_device_resource=lambda resource: setattr(mr, "current", resource),
    )
    fake, cupy = ModuleType("rmm"), ModuleType("rmm.allocators.cupy")
    vars(fake).update(mr=mr, DeviceBuffer=lambda size: mr.current)
    vars(cupy)["rmm_cupy_allocator"] = len
    for name, module in (("rmm", fake), ("rmm.allocators.cupy", cupy)):
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setitem(sys.modules, "rmm.allocators", ModuleType("rmm.allocators"))
    return mr


@pytest.mark.parametrize(
    ("size", "taken"),
    [
        (None, FIRST_BYTES),
        (0.5, 40 * GIB),
        ("0.25", 20 * GIB),
        ("8 GiB", 8 * GIB),
        (3 * GIB + 1, 3 * GIB),
        (1.0, LIMIT),
    ],
)
@pytest.mark.parametrize("stream_ordered", [False, True])
def test_a_pool_takes_what_is_wanted_of_the_device_and_no_more_than_its_share(
    rmm: SimpleNamespace, size: float | str | None, taken: int, stream_ordered: bool
) -> None:
    assert use_rmm(LIMIT, TOTAL, lambda: False, size, stream_ordered) is len
    source = rmm.current.get_upstream().get_upstream()
    pool = source.get_upstream() if stream_ordered else source
    assert isinstance(pool, Async if stream_ordered else Pool)
    assert pool.options["initial_pool_size"] == taken
    assert taken % ALIGNMENT == 0
    if stream_ordered:
        assert source.options == {"allocation_limit": LIMIT}


def test_a_pool_that_doubles_is_refused_what_is_beyond_its_share(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cupy = ModuleType("cupy")
    runtime = SimpleNamespace(malloc=lambda size: size, CUDARuntimeError=RuntimeError)
    vars(cupy)["cuda"] = SimpleNamespace(runtime=runtime)
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setitem(sys.modules, "cupy.cuda", vars(cupy)["cuda"])
    freed: list[int] = []
    monkeypatch.setattr(device, "allocations", Allocations(SimpleNamespace(free=freed.append)))
    driver = Bounded(4 * GIB)
    assert driver.take(3 * GIB, None)
    with pytest.raises(MemoryError, match="more than the 1073741824 left"):
        driver.take(2 * GIB, None)
    driver.give_back(driver.take(GIB, None), GIB, None)
    assert freed == [GIB]
    assert driver.take(GIB, None)


@pytest.mark.parametrize("stream_ordered", [False, True])
def test_an_allocation_that_fails_makes_room_in_either_pool(
    rmm: SimpleNamespace, stream_ordered: bool
) -> None:
    use_rmm(LIMIT, TOTAL, [True, False].pop, None, stream_ordered)
    _, on_failure = rmm.current.get_upstream().upstream
    assert (on_failure(100), on_failure(100)) == (False, True)


@pytest.mark.parametrize(("stream_ordered", "free"), [(False, 7 * GIB), (True, 3 * GIB)])
def test_what_either_pool_keeps_unused_counts_as_free(
    rmm: SimpleNamespace, stream_ordered: bool, free: int
) -> None:
    use_rmm(LIMIT, TOTAL, lambda: False, "8 GiB", stream_ordered)
    assert free_in_rmm() == free


@pytest.mark.parametrize("wish", [{"rmm-pool-size": 0.5}, {"rmm-async": True}])
def test_a_worker_without_rmm_says_what_it_lacks_and_where(
    tmp_path: Path, wish: dict[str, Any]
) -> None:
    assert importlib.util.find_spec("rmm") is None
    with dask.config.set({"gputui": wish}), pytest.raises(ModuleNotFoundError) as caught:
        Device(fork_order(tmp_path), 1e6)
    last = why_not_started(caught.value, "127.0.0.1")
    kind, reason = how_it_ended(1 << 8, last, ready=None)
    assert kind == "import-error"
    assert f"need RMM, which {sys.executable} does not have; install rmm-cu12" in reason


@pytest.mark.parametrize("wish", [{}, {"rmm-pool-size": None, "rmm-async": False}])
def test_a_worker_that_wants_nothing_of_rmm_does_without(
    tmp_path: Path, wish: dict[str, Any]
) -> None:
    assert importlib.util.find_spec("rmm") is None
    with dask.config.set({"gputui": wish}):
        assert Device(fork_order(tmp_path), 1e6).uuid is None
