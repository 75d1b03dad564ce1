"""More ways in which clusters hang, from experience; each is made for real, and named by `why`."""

import asyncio
import contextlib
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from distributed import Lock, get_client

from tests.clusters import Clusters
from tests.head.test_head import client_of
from tests.head.test_why import inc, until, why
from tests.sshd import Namespaces

pytestmark = pytest.mark.slow
ONE = "localhost gpus=none workers=1 nthreads=1 memory=1GiB"
TWO_THREADS = "localhost gpus=none workers=1 nthreads=2 memory=1GiB"


@contextlib.asynccontextmanager
async def running(clusters: Clusters, hosts: str = ONE, workers: int = 1) -> AsyncIterator:
    """Yield a cluster and a client of it; whatever hangs there ends with it."""
    cluster = await clusters.start(hosts)
    await cluster.up(workers)
    async with client_of(cluster) as client:
        try:
            yield cluster, client
        finally:
            cluster.head.terminate()


def in_turn(first: str, second: str, folder: str) -> None:
    """Take two locks, the second once somebody else has it."""
    with Lock(first):
        Path(folder, first).touch()
        while not Path(folder, second).exists():
            time.sleep(0.01)
        with Lock(second):
            pass


async def test_tasks_that_hold_each_others_locks_are_named_with_the_locks(
    clusters: Clusters, tmp_path: Path
) -> None:
    async with running(clusters, ONE.replace("workers=1", "workers=2"), 2) as (cluster, client):
        tasks = [client.submit(in_turn, *pair, str(tmp_path)) for pair in ("ab", "ba")]
        await until(
            cluster, "2 tasks wait for", "Dask lock", "in_turn-", "waits for a", "waits for b"
        )
        assert not any(task.done() for task in tasks)


def ask_for_more() -> int:
    return get_client().submit(inc, 1, pure=False).result()


def write_until_there_is_room(folder: str) -> None:
    while True:
        with contextlib.suppress(OSError), Path(folder, "result").open("wb") as file:
            file.write(bytes(2**27))
            return
        time.sleep(0.05)


@pytest.fixture
def small_disk(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A disk of 70 MiB for all that is temporary."""
    if os.geteuid():
        pytest.skip("mounting needs root")
    folder = runtime / "disk"
    folder.mkdir(mode=0o700)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=70m", "tmpfs", folder], check=True)
    monkeypatch.setenv("TMPDIR", str(folder))
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


async def test_a_full_disk_that_a_task_writes_to_is_named(
    small_disk: Path, clusters: Clusters
) -> None:
    async with running(clusters) as (cluster, client):
        task = client.submit(write_until_there_is_room, str(small_disk))
        await until(cluster, "disk full", str(small_disk))
        del task


HANG = """
#include <unistd.h>
void hang(void) { if (vfork() == 0) { pause(); _exit(0); } }
"""
"""The parent of a vfork waits for its child in state D, as for a file system that is frozen."""


@pytest.fixture
def hanging_library(tmp_path: Path) -> str:
    source = tmp_path / "hang.c"
    source.write_text(HANG)
    built = str(tmp_path / "libhang.so")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", built, source], check=True)
    return built


def hang_in_the_kernel(library: str) -> None:
    import ctypes

    ctypes.CDLL(library).hang()


async def test_a_task_that_the_kernel_holds_is_named_with_what_it_waits_in(
    clusters: Clusters, hanging_library: str
) -> None:
    async with running(clusters) as (cluster, client):
        task = client.submit(hang_in_the_kernel, hanging_library)
        await until(cluster, "localhost:cpu0", "hang_in_the_kernel", "waits in the kernel:")
        del task


TRACER = """
import ctypes, os, signal, sys
assert ctypes.CDLL(None, use_errno=True).ptrace(16, int(sys.argv[1]), 0, 0) == 0
print("attached", flush=True)
signal.pause()
"""


async def test_a_worker_that_a_debugger_holds_is_named_with_the_debugger(
    clusters: Clusters,
) -> None:
    if os.geteuid():
        pytest.skip("tracing what is no child needs root")
    async with running(clusters) as (cluster, _):
        pid = cluster.workers["localhost:cpu0"].pid
        command = [sys.executable, "-c", TRACER, str(pid)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as tracer:
            assert tracer.stdout and tracer.stdout.readline() == b"attached\n"
            try:
                await until(cluster, "worker localhost:cpu0 is held by", "python", str(tracer.pid))
            finally:
                tracer.kill()


def ask() -> str:
    sys.stdin = os.fdopen(os.pipe()[0])
    return input("Overwrite? ")


def run_a_child_that_asks() -> None:
    subprocess.run(["cat"], stdin=os.pipe()[0], check=True)


def open_what_nobody_writes(path: str) -> bytes:
    return Path(path).read_bytes()


def lock_twice() -> None:
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def pickle_much() -> None:
    import collections
    import pickle

    class Nowhere:
        write = collections.deque(maxlen=1).append

    pickler = pickle.Pickler(Nowhere())
    pickler.fast = True
    pickler.dump([[(1.5,)] * 2**20] * 500)


def backtrack() -> None:
    re.match(r"(a+)+$", "a" * 60 + "b")


class NeverGone:
    def __del__(self) -> None:
        while True:
            pass


def leave() -> None:
    NeverGone()


async def block() -> None:
    time.sleep(60)


def take_all_descriptors() -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
    kept = []
    with contextlib.suppress(OSError):
        while True:
            kept.append(os.dup(0))
    time.sleep(600)


HERE = "head/test_more_faults.py:"
HOLDS = "worker localhost:cpu0 holds the GIL in"


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (ask_for_more, ("1 task waits for", "that it submitted", "ask_for_more", "secede")),
        (ask, ("ask", HERE, "reads from a pipe")),
        (run_a_child_that_asks, ("a_child_that_asks", HERE, "waits for a child process", "cat")),
        (open_what_nobody_writes, ("open_what_nobody_writes", HERE, "waits in open")),
        (lock_twice, ("lock_twice", HERE, "waits for a lock of this process")),
        (pickle_much, (HOLDS, "pickle_much")),
        (backtrack, (HOLDS, "backtrack")),
        (leave, ("leave", "__del__")),
        (block, (f"worker localhost:cpu0: {HERE}", "block", "holds up its event loop")),
        (take_all_descriptors, ("localhost:cpu0", " of 256 file descriptors")),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
async def test_a_task_that_hangs_is_named_with_its_line_and_what_it_waits_for(
    function: Callable[..., object], words: tuple[str, ...], clusters: Clusters, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "fifo")
    async with running(clusters) as (cluster, client):
        given = [str(tmp_path / "fifo")] if function is open_what_nobody_writes else []
        task = client.submit(function, *given)
        await until(cluster, *words)
        del task


async def test_a_worker_that_another_does_not_reach_and_a_silent_host_are_named(
    clusters: Clusters, namespace_hosts: Namespaces
) -> None:
    first, second, _ = namespace_hosts.hosts
    text = "\n".join(namespace_hosts.text("gpus=none workers=1 nthreads=1").splitlines()[:2])
    cluster = await clusters.start(text, ssh_config=str(namespace_hosts.config), up=2)
    here, there = [cluster.workers[f"{host.name}:cpu0"] for host in (first, second)]
    nowhere = f"neigh replace {second.address} lladdr 02:00:00:00:00:99 nud permanent dev eth0"
    async with client_of(cluster) as client:
        held = client.submit(bytes, 10**6, workers=[there.address], pure=False)
        await held
        namespace_hosts.ip(first, nowhere)
        try:
            task = client.submit(len, held, workers=[here.address], pure=False)
            await until(cluster, "1 task waits for a result of host2:cpu0", "host1:cpu0")
        finally:
            namespace_hosts.ip(first, f"neigh del {second.address} dev eth0")
        assert await task == 10**6
        results = client.map(bytes, [10**6] * 12, workers=[there.address], pure=False)
        await asyncio.gather(*results)
        namespace_hosts.cut(second)
        try:
            tasks = client.map(len, results, workers=[here.address], pure=False)
            await until(cluster, "12 tasks wait for a result of host2:cpu0, which is silent")
        finally:
            namespace_hosts.mend(second)
            cluster.head.terminate()
        del tasks


async def test_a_task_for_a_worker_that_is_not_there_is_named_with_its_address(
    clusters: Clusters,
) -> None:
    async with running(clusters) as (cluster, client):
        task = client.submit(inc, 1, workers=["tls://127.0.0.1:1"])
        await until(cluster, "1 task waits for", "no worker", "tls://127.0.0.1:1")
        del task


async def test_results_that_a_slow_client_does_not_fetch_wait_for_it(clusters: Clusters) -> None:
    async with running(clusters) as (cluster, client):
        results = client.map(bytes, [10**6] * 5, pure=False)
        await asyncio.gather(*results)
        await until(cluster, "idle:", "5 results", "waits for your client")


def work(seconds: float) -> int:
    end, turns = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        turns += 1
    return turns


def read_files(times: int) -> int:
    return sum(len(Path(__file__).read_bytes()) for _ in range(times))


def call_programs(times: int) -> int:
    return sum(subprocess.run(["sleep", "0.05"]).returncode for _ in range(times))


def wait_for_data(times: int) -> None:
    for _ in range(times):
        time.sleep(0.1)


@pytest.mark.parametrize("hosts", [ONE.replace("workers=1", "workers=2"), TWO_THREADS])
async def test_healthy_busy_clusters_are_accused_of_nothing(hosts: str, clusters: Clusters) -> None:
    async with running(clusters, hosts) as (cluster, client):
        tasks = [
            task
            for function, much in (
                (work, 0.4),
                (read_files, 300),
                (call_programs, 20),
                (wait_for_data, 15),
            )
            for task in client.map(function, [much] * 12, pure=False)
        ]
        await until(cluster, "working:")
        for _ in range(8):
            assert [verdict.cause for verdict in await why(cluster)] == ["working"]
            shown = cluster.snapshot
            await cluster.until(lambda: cluster.snapshot is not shown)  # noqa: B023
        await client.cancel(tasks)
