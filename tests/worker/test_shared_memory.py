"""Memory files between an owner and a reader, both in this process."""

import os
import signal
import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gputui.worker.transfers import shared_memory
from gputui.worker.transfers.comm import WorkerComm
from gputui.worker.transfers.loans import Location, Page
from gputui.worker.transfers.shared_memory import (
    MappedFile,
    MappedFiles,
    parse_offers,
    put,
    put_into,
)

SIZE = 2**20
BYTES = memoryview(np.random.default_rng(1).bytes(SIZE))
OTHERS = memoryview(np.random.default_rng(2).bytes(SIZE))


@pytest.fixture(autouse=True)
def _nothing_of_other_tests() -> None:
    """Give up what tests in this process had mapped before."""
    shared_memory.mapped_files.drop(shared_memory.mapped_files.offered().values())


@pytest.fixture
def here() -> Location:
    return Location.here(Page().descriptor, device="")


@pytest.fixture
def mapped_files() -> MappedFiles:
    return MappedFiles()


def taken(mapped_files: MappedFiles, here: Location, buffer: memoryview = BYTES) -> memoryview:
    """Return what a reader has of a buffer that went as a new file."""
    descriptor = put(buffer)
    try:
        return mapped_files.map(here, descriptor, buffer.nbytes)
    finally:
        os.close(descriptor)


def offers(found: dict[int, MappedFile]) -> list[tuple[int, int, int]]:
    return [each.offer for each in found.values()]


def mappings() -> int:
    return Path("/proc/self/maps").read_text().count("memfd:gputui-array")


def test_the_file_of_a_dropped_array_takes_the_next_one(
    mapped_files: MappedFiles, here: Location
) -> None:
    view = taken(mapped_files, here)
    assert view == BYTES
    assert not mapped_files.offered()
    del view
    found = mapped_files.offered()
    place = put_into(offers(found), here, OTHERS)
    assert place is not None
    again = mapped_files.view(found.pop(place), SIZE)
    assert again == OTHERS
    assert not mapped_files.offered()
    del again
    mapped_files.drop(mapped_files.offered().values())
    assert mappings() == 0


def test_an_array_goes_into_the_smallest_file_that_holds_it_and_no_much_larger_one(
    mapped_files: MappedFiles, here: Location
) -> None:
    sizes = (SIZE // 2, SIZE * 5 // 4, SIZE * 9 // 8, 2 * SIZE)
    views = [taken(mapped_files, here, memoryview(bytes(size))) for size in sizes]
    del views
    found = mapped_files.offered()
    left = offers(found)
    used = [put_into(left, here, BYTES) for _ in range(3)]
    assert [place and found[place].size for place in used] == [sizes[2], sizes[1], None]
    mapped_files.drop(found.values())


def test_a_descriptor_that_is_another_file_now_is_not_written_into(
    here: Location, tmp_path: Path
) -> None:
    own = tmp_path / "own"
    own.write_bytes(bytes(SIZE))
    with own.open("r+b") as file:
        inode = os.fstat(file.fileno()).st_ino
        for said in ((file.fileno(), inode + 1, SIZE), (file.fileno(), inode, SIZE)):
            assert put_into([said], here, BYTES) is None
    assert own.read_bytes() == bytes(SIZE)


@pytest.mark.parametrize("said", [None, "text", [1], [[1]], [[1, 2, "3"]], [[True, 2, 3]]])
def test_offers_that_are_none_are_passed_over(said: object) -> None:
    assert parse_offers(said) == []


def test_what_is_not_used_is_given_up(
    mapped_files: MappedFiles, here: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    view = taken(mapped_files, here)
    del view
    mapped_files.trim()
    assert mappings() == 1
    monkeypatch.setattr(shared_memory, "KEPT_S", 0.0)
    mapped_files.trim()
    assert mappings() == 0
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


def test_no_more_is_kept_than_the_worker_may(mapped_files: MappedFiles, here: Location) -> None:
    mapped_files.most_bytes = SIZE
    views = [taken(mapped_files, here) for _ in range(3)]
    del views
    assert mappings() == 1
    mapped_files.drop(mapped_files.offered().values())


def test_with_many_arrays_in_use_descriptors_are_not(
    mapped_files: MappedFiles, here: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_memory, "MOST_DESCRIPTORS", 1)
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    views = [taken(mapped_files, here) for _ in range(3)]
    assert len(os.listdir("/proc/self/fd")) == before + 1  # noqa: PTH208
    assert all(view == BYTES for view in views)
    views.clear()
    mapped_files.drop(mapped_files.offered().values())
    assert mappings() == 0


def test_what_a_forked_child_has_mapped_takes_no_other_array(here: Location) -> None:
    own = shared_memory.mapped_files
    view = taken(own, here)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads, from Python 3.12 on
        child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
    del view
    assert not own.offered()
    assert mappings() == 0


def test_a_child_may_drop_arrays_though_another_thread_held_the_lock(
    mapped_files: MappedFiles, here: Location
) -> None:
    kept, used = taken(mapped_files, here), taken(mapped_files, here)
    del kept
    with mapped_files._lock, warnings.catch_warnings():  # as one thread does while another trims
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
        if pid == 0:
            signal.alarm(10)
            mapped_files.forked_here()
            thread = threading.Thread(target=lambda: mapped_files.give_back(()))
            thread.start()
            thread.join()
            os._exit(len(mapped_files.offered()) + (used[0] != BYTES[0]))
    assert os.waitpid(pid, 0)[1] == 0
    mapped_files.drop(mapped_files.offered().values())


def test_files_that_were_offered_in_vain_are_given_up(here: Location) -> None:
    mapped_files = shared_memory.mapped_files
    array = taken(mapped_files, here)
    del array
    before = mappings()
    comm: Any = object.__new__(WorkerComm)
    comm._loan, comm._offered = None, mapped_files.offered()
    comm._release()
    assert (comm._offered, mappings()) == (None, before - 1)
