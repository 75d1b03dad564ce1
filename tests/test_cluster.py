"""`GPUCluster` and `connect`, with Dask's own client and real workers of this machine."""

import asyncio
import importlib
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import dask
import pytest
from distributed import Client
from distributed.deploy import Cluster

import gputui
from gputui.client.gpucluster import GPUCluster
from gputui.client.sources import read_hosts
from gputui.errors import ClusterError, HeadError, HostsError, UsageError
from gputui.presets.workers import known_workers
from gputui.protocol.connection_file import running_clusters
from tests.clusters import TWO_WORKERS
from tests.processes import nothing_left


@pytest.fixture(autouse=True)
def _long_lease(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have a lease that is no help to an end that was asked for."""
    monkeypatch.setenv("DASK_GPUTUI__LEASE", "60")
    with dask.config.set({"gputui.lease": 60}):
        yield


def test_a_client_computes_on_a_cluster_and_on_a_hold_of_it_by_name_or_as_the_only_one() -> None:
    with pytest.raises(HeadError, match="no cluster runs here"):
        gputui.connect()
    with GPUCluster(TWO_WORKERS, name="mine") as cluster, Client(cluster) as client:
        assert client.submit(sum, [1, 2]).result() == 3
        names = {worker["name"] for worker in known_workers(client).values()}
        assert names == {"localhost:cpu0", "localhost:cpu1"}
        assert cluster.scheduler_address.startswith("tls://127.0.0.1:")
        with gputui.connect("mine") as held, Client(held) as another:
            assert another.submit(sum, [3, 4]).result() == 7
            assert isinstance(held, Cluster) and held.observed == cluster.observed == names
            assert held.scale(1) == "0 start, 1 stop"
        with gputui.connect() as only:
            assert only.name == "mine"
        assert [connection_file.name for connection_file in running_clusters()] == ["mine"]


def test_hosts_that_all_fail_raise_every_reason() -> None:
    with pytest.raises(ClusterError, match=r"0 of at least 1(.|\n)*no GPU 7(.|\n)*gpus=none"):
        GPUCluster("localhost gpus=7")


def test_a_bad_line_is_told_before_anything_starts() -> None:
    with pytest.raises(HostsError, match="unknown key 'gpu'"):
        GPUCluster("a gpu=0")


@pytest.mark.slow
def test_shutting_down_a_client_ends_the_cluster() -> None:
    cluster = GPUCluster(TWO_WORKERS)
    Client(cluster).shutdown()
    assert cluster.status.name == "closed"


@pytest.mark.slow
@pytest.mark.parametrize("call", ["GPUCluster(hosts)", "connect()"])
def test_a_program_that_closes_nothing_ends_quietly(tmp_path: Path, call: str) -> None:
    """At that end Python 3.12 starts no thread."""
    program = f"""
        import atexit, threading
        import gputui
        from distributed import Client
        hosts = {TWO_WORKERS!r}
        cluster = gputui.{call}
        client = Client(cluster)
        print(client.submit(sum, [1, 2]).result())

        def start(thread):
            raise RuntimeError("can't create new thread at interpreter shutdown")

        atexit.register(setattr, threading.Thread, "start", start)
    """
    running = [GPUCluster(TWO_WORKERS)] if call == "connect()" else []
    command = [sys.executable, "-c", textwrap.dedent(program)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "3\n", "")
    for cluster in running:
        cluster.close()


@pytest.mark.slow
def test_clients_left_open_are_closed_before_their_cluster(tmp_path: Path) -> None:
    """Quietly, too, where the loop ends while they wait to send: rare, so it is made to."""
    program = f"""
        import asyncio, atexit, gc, time
        import distributed.client
        from distributed import Client
        import gputui
        @atexit.register
        def collect():
            clients.clear()
            gc.collect()
        end = asyncio.BaseEventLoop.shutdown_default_executor
        async def end_late(loop):
            await end(loop)
            time.sleep(0.5)
        asyncio.BaseEventLoop.shutdown_default_executor = end_late
        class SendsRarely(distributed.client.BatchedSend):
            def __init__(self, interval, loop):
                super().__init__("300ms", loop)
        distributed.client.BatchedSend = SendsRarely
        class Cluster(gputui.GPUCluster):
            def close(self, timeout=None):
                print([client.status for client in clients])
                return super().close(timeout)
        cluster = Cluster({TWO_WORKERS!r})
        clients = [Client(cluster), Client(cluster)]
        time.sleep(0.5)
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=60)
    assert (done.stdout, done.stderr) == ("['closed', 'closed']\n", "")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
async def test_a_program_that_is_ended_takes_its_cluster_along(number: signal.Signals) -> None:
    program = f"""
        import time
        from gputui import GPUCluster
        cluster = GPUCluster({TWO_WORKERS!r})
        print(cluster.cluster_id, flush=True)
        time.sleep(60)
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", textwrap.dedent(program), stdout=subprocess.PIPE
    )
    cluster_id = (await process.stdout.readline()).decode().strip()
    os.kill(process.pid, number)
    await process.wait()
    await nothing_left(cluster_id)


def test_hosts_may_be_a_file_a_text_or_lines(tmp_path: Path) -> None:
    path = tmp_path / "lab.txt"
    path.write_text("gpu-a\n")
    of_file, of_lines = read_hosts(str(path)), read_hosts(["gpu-a", "gpu-b"])
    assert (of_file.text, of_file.source) == ("gpu-a\n", str(path))
    assert (of_lines.text, of_lines.source) == ("gpu-a\ngpu-b", "")


@pytest.mark.slow
def test_a_task_that_a_worker_cannot_load_raises_why_and_its_module_can_be_sent(
    runtime: Path,
) -> None:
    folder = runtime / "unknown to the cluster"
    folder.mkdir()
    (folder / "of_the_client.py").write_text("def double(x):\n    return 2 * x\n")

    def find(folder: str) -> None:
        sys.path.append(folder)

    with GPUCluster(TWO_WORKERS) as cluster, Client(cluster) as client:
        pids = client.run(os.getpid)
        with pytest.MonkeyPatch.context() as patch:
            patch.syspath_prepend(str(folder))
            double = importlib.import_module("of_the_client").double
            client.run_on_scheduler(find, str(folder))
            with pytest.raises(ModuleNotFoundError, match="of_the_client") as raised:
                client.submit(double, 4).result(timeout=30)
            assert "gputui.send_modules" in raised.value.__notes__[0]
            assert client.run(os.getpid) == pids
            with pytest.raises(UsageError, match="nowhere: no such folder"):
                gputui.send_modules(client, runtime / "nowhere")
            gputui.send_modules(client, folder)
            assert client.submit(double, 5).result(timeout=30) == 10
        for factor in (3, 4):
            uploaded = runtime / "of_the_client.py"
            uploaded.write_text(f"def double(x):\n    return {factor} * x\n")
            client.upload_file(str(uploaded))
            assert client.submit(double, 5, pure=False).result(timeout=30) == 5 * factor
