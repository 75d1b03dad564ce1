"""Arrays between two workers of one host, on real workers of a real cluster."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from distributed import Client, wait

from gputui import GPUCluster
from gputui.presets.workers import known_workers
from tests.system.conftest import wait_until

HOSTS = "localhost gpus=none workers=2 nthreads=1 memory=1GiB"
BOUND_S = 30
NUMBERS = 2**20
"""Of float64: 8 MiB, well above what pays."""


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with GPUCluster(HOSTS) as cluster, Client(cluster) as one:
        one.wait_for_workers(2)
        yield one


def workers(client: Client) -> list[str]:
    return sorted(known_workers(client))


def moved(client: Client, make: Callable[[], Any], look: Callable[[Any], Any]) -> Any:
    """Return what the second worker sees in a value that the first one made."""
    owner, reader = workers(client)
    value = client.submit(make, workers=[owner], pure=False)
    return client.submit(look, value, workers=[reader], pure=False).result(timeout=BOUND_S)


def is_mapped(array: Any) -> bool:
    """Return whether an array lies in a memory file that was mapped."""
    start = array.__array_interface__["data"][0]
    for line in Path("/proc/self/maps").read_text().splitlines():
        first, _, last = line.split()[0].partition("-")
        if int(first, 16) <= start < int(last, 16):
            return "memfd:gputui-array" in line
    raise AssertionError(f"{start:#x} is nowhere")


def numbers() -> Any:
    return np.random.default_rng(7).random(NUMBERS)


def test_a_large_array_is_mapped_and_the_reader_may_write_into_it(client: Client) -> None:
    def look(array: Any) -> Any:
        total = float(array.sum())
        array += 1
        return total, is_mapped(array)

    total, mapped = moved(client, numbers, look)
    assert total == pytest.approx(numbers().sum())
    assert mapped


def test_arrays_are_found_wherever_they_are_nested(client: Client) -> None:
    def make() -> Any:
        return {"one": [numbers(), SimpleNamespace(inside=(numbers(),))], 2: "text"}

    def look(value: Any) -> Any:
        found = (value["one"][0], value["one"][1].inside[0])
        return [(is_mapped(array), float(array.sum())) for array in found], value[2]

    found, text = moved(client, make, look)
    assert text == "text"
    assert found == [(True, pytest.approx(numbers().sum()))] * 2


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.reshape(1024, -1).T,
        lambda x: x.reshape(1024, -1)[::2, ::3],
        lambda x: x[::-1],
        lambda x: x.view("M8[ns]"),
        lambda x: x.astype("f4").reshape(4, -1, 2)[:, 1:],
        lambda x: np.broadcast_to(x, (2, NUMBERS)),
        lambda x: np.array([x, "text"], dtype=object),
        lambda x: np.ma.masked_greater(x, 0.5),
        lambda x: x[:0],
    ],
)
def test_an_array_of_any_layout_arrives_as_it_was(client: Client, view: Any) -> None:
    def seen(array: Any) -> Any:
        return array.shape, array.dtype.str, array.tobytes() if array.dtype != object else array[1]

    assert moved(client, lambda: view(numbers()), seen) == seen(view(numbers()))


def test_frames_and_tables_arrive_as_they_were(client: Client) -> None:
    pandas, arrow = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")

    def make() -> Any:
        frame = pandas.DataFrame({"a": numbers(), "b": np.arange(NUMBERS) % 7})
        frame["c"] = frame["b"].astype(str).astype("category")
        return frame, arrow.table({"a": numbers(), "b": ["text"] * NUMBERS}).slice(5)

    def look(made: Any) -> Any:
        return made[0].equals(make()[0]), made[1].equals(make()[1]), is_mapped(made[0]["a"].values)

    assert moved(client, make, look) == (True, True, True)


def bytes_moved() -> dict[str, int]:
    """Return what came to this worker, by way."""
    from gputui.worker.transfers.loans import moved_bytes

    return {way.value: size for way, size in moved_bytes.items()}


def counted(client: Client, make: Callable[[], Any]) -> dict[str, int]:
    """Return by how much the second worker's counts grow with a value of the first one's."""
    _, reader = workers(client)
    before = client.run(bytes_moved, workers=[reader])[reader]
    moved(client, make, lambda value: None)
    after = client.run(bytes_moved, workers=[reader])[reader]
    return {way: after[way] - before[way] for way in after if after[way] > before[way]}


def test_what_comes_is_counted_by_way(client: Client) -> None:
    large, small = 8 * NUMBERS, 80_000
    found = counted(client, lambda: [numbers(), np.arange(10_000)])
    assert found["shared memory"] == large
    assert small <= found["TLS"] < small + 10_000, "what goes along is small"
    assert small <= counted(client, lambda: np.arange(10_000))["TLS"] < 2 * small


@pytest.mark.slow
def test_what_was_moved_counts_once(client: Client) -> None:
    """The owner keeps nothing once the reader has it, and the reader no descriptor."""
    owner, reader = workers(client)
    value = client.submit(numbers, workers=[owner], pure=False)
    copy = client.submit(lambda x: x, value, workers=[reader], pure=False)
    wait([value, copy], timeout=BOUND_S)

    def files() -> Any:
        maps = Path("/proc/self/maps").read_text().count("memfd:gputui-array")
        opened = [os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")]  # noqa: PTH208
        return maps, sum("gputui-array" in name for name in opened)

    wait_until(lambda: client.run(files, workers=[owner]) == {owner: (0, 0)})
    wait_until(lambda: client.run(files, workers=[reader]) == {reader: (1, 0)})
    del value, copy
    wait_until(lambda: client.run(files, workers=[reader]) == {reader: (0, 0)})


class Unwilling:
    """Cannot be put together from a mapping, as a class of a user's own that is particular."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __setstate__(self, state: dict[str, Any]) -> None:
        if is_mapped(state["array"]):
            raise RuntimeError("not from there")
        self.__dict__.update(state)


def test_what_cannot_be_put_together_is_asked_for_as_bytes(client: Client) -> None:
    look = lambda value: (is_mapped(value.array), float(value.array.sum()))  # noqa: E731
    client.run(set_trap)
    assert counted(client, lambda: Unwilling(numbers()))["TLS"] >= 8 * NUMBERS
    mapped, total = moved(client, lambda: Unwilling(numbers()), look)
    assert not mapped
    assert total == pytest.approx(numbers().sum())


def set_trap() -> None:
    """Have the size of what is unwilling told, so that it is worth lending."""
    from dask.sizeof import sizeof

    sizeof.register(Unwilling, lambda value: value.array.nbytes)


@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, 1], ids=["owner", "reader"])
def test_a_worker_killed_while_arrays_move_leaves_nothing_and_hangs_nobody(victim: int) -> None:
    with GPUCluster(HOSTS.replace("workers=2", "workers=3")) as cluster, Client(cluster) as client:
        client.wait_for_workers(3)
        pids = client.run(os.getpid)
        names = sorted(pids)
        anywhere = {"allow_other_workers": True, "pure": False}
        parts = [
            client.submit(np.full, NUMBERS, float(i), workers=names[:2], **anywhere)
            for i in range(24)
        ]
        wait(parts, timeout=BOUND_S)
        sums = [
            client.submit(lambda a, b: float(a[0] + b[-1]), a, b, workers=names[1:], **anywhere)
            for a in parts[::2]
            for b in parts[1::2]
        ]
        next(iter(sums)).result(timeout=BOUND_S)
        os.kill(pids[names[victim]], signal.SIGKILL)
        expected = [float(a + b) for a in range(0, 24, 2) for b in range(1, 24, 2)]
        assert client.gather(sums) == expected


def test_with_the_setting_bytes_nothing_is_mapped() -> None:
    with (
        GPUCluster(f"{HOSTS} env.DASK_GPUTUI__TRANSFERS=bytes") as cluster,
        Client(cluster) as client,
    ):
        client.wait_for_workers(2)
        assert moved(client, numbers, is_mapped) is False
        ((way, size),) = counted(client, numbers).items()
        assert way == "TLS" and size >= 8 * NUMBERS
