"""A GPUCluster where others take a `distributed.deploy.Cluster`.

Sources: what distributed's deploy/tests/test_local.py, test_cluster.py, test_adaptive.py and
test_spec_cluster.py, dask-labextension's manager and dask-cuda's test_local_cuda_cluster.py check.
"""

import asyncio
import contextlib
import gc
import inspect
import logging
import multiprocessing
import os
import re
import signal
import ssl
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import dask
import numpy
import pytest
from distributed import Client, Environ, LocalCluster, get_worker, performance_report, wait
from distributed.deploy import Adaptive, Cluster
from distributed.system import MEMORY_LIMIT

from gputui.client.gpucluster import GPUCluster
from gputui.client.keywords import translate
from gputui.errors import ClusterError, HeadError, UsageError
from gputui.head.scheduler_process import make_certificate
from gputui.model.readings import Wanted
from gputui.presets.workers import choose, known_workers
from gputui.protocol.connection_file import running_clusters
from tests import fakes
from tests.processes import nothing_left
from tests.system.conftest import wait_until

pytestmark = pytest.mark.usefixtures("runtime")
HOSTS = "localhost gpus=none nthreads=1"


@pytest.fixture(scope="module")
def standing() -> Iterator[tuple[GPUCluster, Client]]:
    """One cluster for the tests that leave it as it was: two workers."""
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory(prefix="gt-") as folder:
        patch.setenv("XDG_RUNTIME_DIR", folder)
        with GPUCluster(HOSTS, n_workers=2) as cluster:
            client = Client(cluster, set_as_default=True)
            yield cluster, client
            client.close()


Standing = tuple[GPUCluster, Client]


def test_it_is_a_cluster_of_dasks_with_what_notebooks_look_at(standing: Standing) -> None:
    cluster, client = standing
    assert isinstance(cluster, Cluster)
    assert cluster.dashboard_link == client.dashboard_link == ""
    names = {"localhost:cpu0", "localhost:cpu1"}
    assert set(cluster.plan) == set(cluster.requested) == set(cluster.observed) == names
    assert set(cluster.workers) == names
    assert sum(info["nthreads"] for info in cluster.scheduler_info["workers"].values()) == 2
    assert "local" in repr(cluster) and "workers=2" in repr(cluster)
    for html in (cluster._repr_html_(), client._repr_html_()):
        assert cluster.name in html or "GPUCluster" in html
    html = cluster._repr_html_()
    assert "<strong>Workers:</strong> 2" in html
    assert "href=" not in html and "None<" not in html


def test_a_client_made_by_hand_shows_itself_without_a_dashboard(standing: Standing) -> None:
    cluster, _ = standing
    with Client(
        cluster.scheduler_address, security=cluster.security, set_as_default=False
    ) as client:
        assert client.dashboard_link == "http://127.0.0.1:0/status"
        assert cluster.scheduler_address in client._repr_html_()


@pytest.mark.slow
def test_a_dashboard_over_https_is_linked_as_such_whatever_this_process_is_configured_for(
    tmp_path: Path,
) -> None:
    made = make_certificate()
    for name, pem in (("cert", made.certificate_pem), ("key", made.key_pem)):
        (tmp_path / name).write_text(pem)
    tls = {
        f"distributed.scheduler.dashboard.tls.{name}": str(tmp_path / name)
        for name in ("cert", "key")
    }
    with dask.config.set(tls):
        cluster = GPUCluster("localhost gpus=none workers=1", dashboard_address=":0")
    with cluster, Client(cluster) as client:
        assert cluster.dashboard_link.startswith("https://127.0.0.1:")
        trusting = ssl.create_default_context(cafile=str(tmp_path / "cert"))
        trusting.check_hostname = False
        assert urlopen(cluster.dashboard_link, context=trusting).status == 200
        assert client.dashboard_link == cluster.dashboard_link
        for html in (cluster._repr_html_(), client._repr_html_()):
            assert {*re.findall('href="([^"]*)"', html)} == {cluster.dashboard_link}


def test_its_logs_and_clients_are_found_through_it(standing: Standing) -> None:
    cluster, client = standing
    assert set(cluster.get_logs()) == {"Cluster", "Scheduler", *cluster.scheduler_info["workers"]}
    logs = cluster.get_logs(cluster=False, workers=False)
    assert set(logs) == {"Scheduler"} and "Register worker" in logs["Scheduler"]
    assert client.cluster is cluster


def test_workers_can_start_processes_of_their_own(standing: Standing) -> None:
    def pooled() -> list[int]:
        with multiprocessing.get_context("fork").Pool(2) as pool:
            return pool.map(abs, [-1, -2])

    assert standing[1].submit(pooled, pure=False).result(timeout=60) == [1, 2]


def test_a_signal_to_a_process_that_a_task_forked_ends_that_process_alone(
    standing: Standing,
) -> None:
    def ended() -> tuple[int, int | None]:
        process = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,))
        process.start()
        process.terminate()
        process.join(30)
        return os.getpid(), process.exitcode

    one = [next(iter(standing[0].scheduler_info["workers"]))]
    first, second = (
        standing[1].submit(ended, pure=False, workers=one).result(timeout=60) for _ in range(2)
    )
    assert first == second == (first[0], -signal.SIGTERM)


def test_a_performance_report_has_a_profile(standing: Standing, tmp_path: Path) -> None:
    def work() -> int:
        return sum(i * i for i in range(3_000_000))

    with performance_report(filename=str(tmp_path / "report.html")):
        standing[1].submit(work, pure=False).result(timeout=60)
    report = (tmp_path / "report.html").read_text()
    tabs = ("Summary", "Task Stream", "System", "Bandwidth", "Worker Profile", "Scheduler Profile")
    assert [tab for tab in tabs if tab not in report] == []
    assert standing[1].profile()["count"] > 0


def test_functions_on_the_scheduler_may_keep_files_as_those_of_memray_do(
    standing: Standing,
) -> None:
    def written(dask_scheduler: Any) -> int:
        return Path(dask_scheduler.local_directory, "profile").write_bytes(b"123")

    assert standing[1].run_on_scheduler(written) == 3


def test_the_state_of_a_cluster_can_be_dumped(standing: Standing, tmp_path: Path) -> None:
    standing[1].dump_cluster_state(str(tmp_path / "state"))
    assert (tmp_path / "state.msgpack.gz").stat().st_size > 1000


def test_waiting_for_more_than_can_come_is_an_error_with_numbers(standing: Standing) -> None:
    with pytest.raises(ClusterError, match="2 of at least 3 workers came up") as caught:
        standing[0].wait_for_workers(3)
    assert not isinstance(caught.value, TimeoutError)
    with pytest.raises(TimeoutError, match="2 of at least 3 workers came up"):
        standing[0].wait_for_workers(3, timeout=60)
    with pytest.raises(ValueError, match="positive integer"):
        standing[0].wait_for_workers(0)


def test_messages_between_scheduler_and_workers_wait_less_than_with_dask(
    standing: Standing,
) -> None:
    def to_workers(dask_scheduler: Any) -> list[float]:
        return [each.interval for each in dask_scheduler.stream_comms.values()]

    def to_scheduler(dask_worker: Any) -> float:
        return float(dask_worker.batched_stream.interval)

    client = standing[1]
    intervals = [*client.run_on_scheduler(to_workers), *client.run(to_scheduler).values()]
    assert intervals == [0.0005] * 4


@pytest.mark.slow
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs")
def test_workers_of_both_kinds_are_pinned_apart_and_work_finds_the_gpu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(fakes.__file__).parent))
    monkeypatch.setenv("GPUTUI_FAKE_NVML", '{"gpus": 1}')

    def cpus() -> set[int]:
        return os.sched_getaffinity(0)

    def name() -> str:
        return str(get_worker().name)

    with (
        GPUCluster("localhost gpus=all workers=1 memory=1GiB") as cluster,
        Client(cluster) as client,
    ):
        known = known_workers(client)
        pins = {
            each["name"]: client.submit(cpus, workers=[at], pure=False).result()
            for at, each in known.items()
        }
        gpu, cpu = pins["localhost:gpu0"], pins["localhost:cpu0"]
        assert gpu and cpu and gpu.isdisjoint(cpu)
        on_gpu = {client.submit(name, resources={"GPU": 1}).result()}
        with dask.annotate(resources={"GPU": 1}):
            tasks = [dask.delayed(name, pure=False)() for _ in range(8)]
        on_gpu |= {*client.gather(client.compute(tasks, optimize_graph=False))}
        chosen = {each["name"] for each in choose(known, "auto", None)[1].values()}
        assert on_gpu == chosen == {"localhost:gpu0"}


@pytest.mark.slow
def test_waiting_is_true_in_every_order() -> None:
    with GPUCluster(HOSTS, n_workers=2) as cluster, Client(cluster) as client:

        def up() -> int:
            return len(known_workers(client))

        assert cluster.scale(1) == "0 start, 1 stop"
        cluster.scale(2)
        client.wait_for_workers(2, timeout="60s")
        assert up() == 2
        client.restart(wait_for_workers=False)
        client.wait_for_workers(2, timeout=60)
        assert up() == 2
        adaptive = cluster.adapt(minimum=1, maximum=3, wait_count=10, interval="500ms")
        assert isinstance(adaptive, Adaptive)
        assert (adaptive.minimum, adaptive.maximum, adaptive.wait_count) == (1, 3, 10)
        slow = client.map(lambda n: __import__("time").sleep(1), range(40), pure=False)
        client.wait_for_workers(3, timeout=60)
        assert up() == 3
        client.cancel(slow)
        adaptive.stop()
        cluster.scale(cores=1)
        assert len(cluster.requested) == 1
        cluster.scale(jobs=2)
        cluster.wait_for_workers(2, timeout=60)
        assert len(cluster.requested) == 2
        cluster.scale(memory="1B")
        assert len(cluster.requested) == 1


@pytest.mark.slow
def test_a_worker_that_a_client_retires_stays_away_and_one_it_restarts_comes_back() -> None:
    with GPUCluster(HOSTS, n_workers=2) as cluster, Client(cluster) as client:
        retired, other = known_workers(client)
        kept = client.submit(sum, [1, 2], workers=[retired])
        wait(kept)
        client.retire_workers([retired])
        assert kept.result() == 3
        wait_until(lambda: len(cluster.requested) == len(cluster.observed) == 1)
        name = known_workers(client)[other]["name"]
        assert client.restart_workers([name], timeout=60) == {name: "OK"}
        wait_until(lambda: cluster.observed == {name})
        cluster.scale(2)
        client.wait_for_workers(2, timeout=60)


@pytest.mark.parametrize(
    "number", ["2", 2.5, True, -1, 10**30, float("nan")], ids=lambda number: repr(number)[:9]
)
def test_a_number_that_is_no_number_of_workers_costs_its_request_only(
    standing: Standing, number: Any
) -> None:
    cluster, client = standing
    requests: list[Callable[[], Any]] = [
        lambda: cluster.scale(number),
        lambda: cluster.adapt(minimum=number),
        lambda: cluster.adapt(minimum=0, wait_count=number),
    ]
    for request in requests:
        with pytest.raises(UsageError, match="write a whole number from 0"):
            request()
    with pytest.raises(UsageError, match="memory='much': write a number such as '64 GiB'"):
        cluster.scale(memory="much")
    with pytest.raises(UsageError, match="interval='soon': write a number such as '15s'"):
        cluster.adapt(interval="soon")
    cluster.scale(2)
    assert client.submit(sum, [1, 2]).result(timeout=30) == 3


def test_numbers_of_numpy_and_whole_floats_are_taken(standing: Standing) -> None:
    cluster, _ = standing
    for number in (numpy.int64(2), 2.0):
        cluster.scale(number)
        assert len(cluster.requested) == 2


@pytest.mark.slow
def test_adapting_again_stops_what_was_before_and_keeps_its_options() -> None:
    with GPUCluster(HOSTS, n_workers=1) as cluster, Client(cluster) as client:
        with pytest.raises(UsageError, match=r"maximun=2: adapt has no .* mean 'maximum'"):
            cluster.adapt(maximun=2)
        with pytest.raises(UsageError, match="the minimum is the greater one"):
            cluster.adapt(minimum=4, maximum=2)
        first = cluster.adapt(minimum=1, maximum=1, interval="100ms", wait_count=2)
        second = cluster.adapt(minimum=3, maximum=3)
        wait_until(lambda: (first.state, second.state) == ("stopped", "running"))
        assert (second.interval, second.wait_count) == (0.1, 2)
        first.stop()
        client.wait_for_workers(3, timeout=60)
        cluster.adapt(minimum=1)
        wait_until(lambda: len(cluster.observed) == 1)
        assert {entry["status"] for _, entry in second.log} == {"up"}
        assert cluster.adapt(minimum=1).stop() is None
        cluster.scale(2)
        client.wait_for_workers(2, timeout=60)


@pytest.mark.slow
def test_adapting_by_cores_and_memory_is_by_those_of_a_worker() -> None:
    with GPUCluster("localhost gpus=none nthreads=2 memory=512MiB", n_workers=0) as cluster:
        bounds = cluster.adapt(minimum_cores=3, maximum_cores=5)
        assert (bounds.minimum, bounds.maximum) == (2, 2)
        cluster.wait_for_workers(2, timeout=60)
        bounds = cluster.adapt(minimum=0, maximum=9, minimum_memory="1 GiB", maximum_memory="2GiB")
        assert (bounds.minimum, bounds.maximum) == (2, 4)
        bounds.stop()
        cluster.scale(cores=1)
        assert len(cluster.requested) == 1


@pytest.mark.slow
def test_an_adaptive_of_ones_own_follows_the_work_from_here(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with GPUCluster(HOSTS, n_workers=0) as cluster, Client(cluster) as client:
        own = cluster.adapt(Adaptive, minimum=2, maximum=2, interval="100ms", wait_count=2)
        client.wait_for_workers(2, timeout=60)
        keyed = cluster.adapt(minimum=1, maximum=1, worker_key=lambda state: state.address)
        assert own.state == "stopped"
        wait_until(lambda: len(cluster.observed) == 1)
        assert [entry["status"] for _, entry in keyed.log][-1] == "down"
    assert [each for each in caplog.records if each.levelno > logging.INFO] == []


@pytest.mark.slow
async def test_what_is_asked_for_before_a_wait_is_sent_before_it() -> None:
    async with GPUCluster(HOSTS, n_workers=1, asynchronous=True) as cluster:
        cluster.scale(3)
        await cluster.wait_for_workers(3)
        adaptive = cluster.adapt(minimum=4, maximum=4)
        await cluster.wait_for_workers(4)
        adaptive.stop()
        cluster.scale(1)
        assert len((await cluster).observed) == 1
        cluster.scale(2)
        assert len((await cluster).observed) == 2
        first, second = cluster.requested
        await cluster.scale_down([first, "gone:cpu7"])
        assert cluster.requested == {second}


def test_fewer_workers_than_asked_for_are_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    with GPUCluster("localhost gpus=none workers=1", n_workers=2) as cluster:
        text = "1 of 2 workers: the hosts have no room for more"
        assert text in caplog.text and text in cluster.get_logs()["Cluster"]


def test_nanny_plugins_are_refused_with_what_to_do_instead(standing: Standing) -> None:
    with pytest.raises(UsageError, match=r"distributed\.nanny\.environ"):
        standing[1].register_plugin(Environ({"A": "1"}))


@pytest.mark.slow
async def test_asynchronous_calls_that_nobody_awaits_are_carried_out() -> None:
    async with GPUCluster(HOSTS, n_workers=0, asynchronous=True) as cluster:
        adaptive = cluster.adapt(minimum=1, maximum=2)
        async with Client(cluster, asynchronous=True) as client:
            await client.wait_for_workers(1, timeout=60)
            adaptive.stop()
            cluster.scale(2)
            await client.wait_for_workers(2, timeout=60)
            assert await client.submit(sum, [1, 2]) == 3
            assert isinstance(await cluster.get_logs(), dict)
    assert cluster.status.name == "closed"
    await cluster.close()
    await nothing_left(cluster.cluster_id)


@pytest.mark.slow
async def test_a_cluster_closed_right_after_an_unawaited_call_ends_quietly(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = await GPUCluster(HOSTS, n_workers=1, asynchronous=True)
    cluster.adapt(minimum=0, maximum=1)
    await cluster.close()
    gc.collect()
    assert [each for each in caplog.records if each.levelno > logging.INFO] == []


def test_a_cluster_that_is_closed_says_so() -> None:
    with GPUCluster(HOSTS, n_workers=1) as cluster:
        pass
    for method, *given in ((cluster.scale, 2), (cluster.run, "smoke"), (cluster.adapt,)):
        with pytest.raises(HeadError, match="this cluster is closed: make another"):
            method(*given)


async def test_a_start_that_takes_too_long_is_a_timeout_and_leaves_nothing() -> None:
    before = {each.cluster_id for each in running_clusters()}
    with pytest.raises(TimeoutError, match="not up after 1ms") as caught:
        await GPUCluster(HOSTS, timeout="1ms", asynchronous=True)
    assert isinstance(caught.value, ClusterError)
    assert {each.cluster_id for each in running_clusters()} == before


@pytest.mark.slow
async def test_a_dropped_cluster_warns_and_leaves_nothing() -> None:
    program = f"""
        import gc, sys
        from gputui import GPUCluster
        cluster = GPUCluster({HOSTS!r}, n_workers=1)
        print(cluster.cluster_id, flush=True)
        del cluster
        gc.collect()
        print("dropped", file=sys.stderr, flush=True)
        sys.stdin.read()
    """
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-W", "always", "-c", textwrap.dedent(program)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    cluster_id = (await process.stdout.readline()).decode().strip()
    said = await process.stderr.readuntil(b"dropped\n")
    assert b"ResourceWarning: unclosed cluster GPUCluster" in said
    own = process.pid
    await nothing_left(cluster_id)
    assert process.returncode is None and Path(f"/proc/{own}").exists()
    await process.communicate(b"")


@pytest.mark.slow
def test_clusters_in_threads_are_apart() -> None:
    found: dict[str, Any] = {}

    def use(number: str) -> None:
        with GPUCluster(HOSTS, n_workers=1) as cluster, cluster.get_client() as client:
            found[number] = (cluster.name, client.submit(sum, [1, 2]).result())

    threads = [threading.Thread(target=use, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(90)
    assert {name for name, _ in found.values()} == {"local", "local-2"}
    assert {three for _, three in found.values()} == {3}


@pytest.mark.slow
def test_a_forked_child_that_exits_leaves_the_cluster_running() -> None:
    program = f"""
        import os, sys
        from gputui import GPUCluster
        cluster = GPUCluster({HOSTS!r}, n_workers=1)
        if os.fork() == 0:
            sys.exit(0)
        os.wait()
        print(cluster.get_client().submit(sum, [1, 2]).result())
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "3\n"), done.stderr


def test_keywords_of_other_clusters_are_taken_where_they_mean_something(tmp_path: Path) -> None:
    with (
        GPUCluster(
            "localhost gpus=none",  # a GPU's worker needs RMM for what follows
            n_workers=1,
            threads_per_worker=2,
            memory_limit="1 GiB",
            local_directory=str(tmp_path),
            protocol="tls",
            rmm_async=True,
            rmm_pool_size="1 GiB",
            device_memory_limit=0.5,
            processes=True,
            silence_logs=30,
            env={"GIVEN": "yes"},
            dashboard_address=None,
        ) as cluster,
        cluster.get_client() as client,
    ):
        (info,) = cluster.scheduler_info["workers"].values()
        assert (info["nthreads"], info["memory_limit"]) == (2, 2**30)
        assert Path(info["local_directory"]).is_relative_to(tmp_path)
        assert client.submit(os.getenv, "GIVEN").result() == "yes"
        device = {"device-memory-limit": 0.5, "rmm-pool-size": "1 GiB", "rmm-async": True}
        assert client.submit(dask.config.get, "gputui").result() == device
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("keywords", "said"),
    [
        ({"protocol": "ucx"}, "protocol='ucx': it is always TLS"),
        ({"processes": False}, "processes=False: workers are processes"),
        ({"rmm_pool_size": -1}, "-1 is not bytes, or a share"),
        ({"rmm_async": "maybe"}, "'maybe' is not True or False"),
        ({"rmm_managed_memory": True}, "rmm_managed_memory=True: .*host memory and disk"),
        ({"device_memory_limit": "much"}, "'much' is not bytes, or a share"),
        ({"device_memory_limit": 0}, "0 is not bytes, or a share"),
        ({"n_worker": 2}, r"n_worker=2: no such keyword \(did you mean .*'n_workers'"),
        ({"n_workers": -1}, "n_workers=-1: write a whole number"),
        ({"n_workers": "two"}, "n_workers='two': write a whole number"),
        ({"workers": 1.5}, "workers=1.5: write a whole number"),
        ({"min_workers": True}, "min_workers=True: write a whole number"),
        ({"timeout": "soon"}, "timeout='soon': write a number such as '15s'"),
        ({"busy": "wait"}, "gputui.busy: 'wait' is not one of warn, skip, refuse"),
        ({"lease_s": -1}, "gputui.lease: -1 is not seconds above 0"),
        ({"scheduler_port": 8786.7}, "gputui.scheduler.port: 8786.7 is not a port"),
        ({"lease_s": True}, "gputui.lease: True is not seconds above 0"),
        ({"notify": 5}, "gputui.notify: 5 is not str"),
        ({"stage_timeout_s": float("nan")}, "gputui.stage-timeout: nan is not seconds above 0"),
        ({"scheduler_port": float("inf")}, "gputui.scheduler.port: inf is not a port"),
        ({"device_memory_limit": float("inf")}, "inf is not bytes, or a share"),
        ({"scheduler_port": "x"}, "gputui.scheduler.port: 'x' is not a port"),
        ({"dashboard_address": "x"}, "dashboard_address='x': write a port"),
        ({"dashboard_address": ":²"}, "dashboard_address=':²': write a port"),
        ({"preload": 5}, "preload=5: write a text, or a list of them"),
        ({"local_directory": 5}, "local_directory=5: write a text"),
        ({"CUDA_VISIBLE_DEVICES": 5.5}, "CUDA_VISIBLE_DEVICES=5.5: write a text"),
        ({"env": 5}, "env=5: write values by name"),
        ({"resources": "GPU"}, "resources='GPU': write numbers by name"),
        ({"memory_limit": "0.5"}, "memory='0.5': write a size"),
        ({"workers": 1, "n_workers": 2}, "workers=1 and n_workers=2: give one of them"),
        ({"hosts": HOSTS, "gpus": 4}, "gpus: no host gives GPUs: leave out gpus=none"),
        ({"hosts": HOSTS, "wait": "2h"}, "wait: for gpus N, or gpus=free:N in HOSTS"),
    ],
)
def test_keywords_that_mean_nothing_are_refused_with_what_to_write(
    keywords: dict[str, Any], said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        GPUCluster(**keywords)


LOCALCUDACLUSTERS = {
    **dict.fromkeys(("CUDA_VISIBLE_DEVICES", "n_workers", "data", "local_directory"), None),
    **dict.fromkeys(("shared_filesystem", "protocol", "enable_tcp_over_ucx"), None),
    **dict.fromkeys(("enable_infiniband", "enable_nvlink", "enable_rdmacm"), None),
    **dict.fromkeys(("rmm_pool_size", "rmm_maximum_pool_size", "rmm_release_threshold"), None),
    **dict.fromkeys(("rmm_allocator_external_lib_list", "rmm_log_directory"), None),
    **dict.fromkeys(("worker_class", "pre_import"), None),
    **dict.fromkeys(("rmm_managed_memory", "rmm_async", "rmm_track_allocations"), False),
    **dict.fromkeys(("log_spilling", "enable_cudf_spill", "jit_unspill"), False),
    "threads_per_worker": 1,
    "memory_limit": "auto",
    "device_memory_limit": "default",
    "cudf_spill_stats": 0,
}
"""Source: its signature in dask-cuda 26.10."""


def test_every_keyword_of_other_clusters_is_known_and_its_default_taken() -> None:
    theirs = inspect.signature(LocalCluster.__init__).parameters
    dasks = {name: each.default for name, each in theirs.items() if each.default is not each.empty}
    own = inspect.signature(GPUCluster.__init__).parameters
    given = {k: v for k, v in (dasks | LOCALCUDACLUSTERS).items() if k not in own}
    assert translate(given).defaults == ["nthreads=1"]
    odd = object()
    for name in given:
        try:
            translate({name: odd})
        except UsageError as error:
            assert "no such keyword" not in str(error)


def test_a_share_of_memory_is_one_of_this_machines_as_dask_takes_it() -> None:
    taken = translate({"memory_limit": 0.5, "CUDA_VISIBLE_DEVICES": 1}).defaults
    assert taken == [f"memory={int(MEMORY_LIMIT * 0.5)}", "gpus=1"]


def test_free_gpus_are_wanted_by_keywords() -> None:
    given = {"gpus": 4, "gpus_per_host": 2, "memory_free": "70GiB", "wait": "2h"}
    assert translate(given).settings == {"wanted": Wanted(4, 2, 70 * 2**30, 7200.0)}
    for odd in ({"gpus": "many"}, {"wait": "soon"}, {"memory_free": "lots"}):
        with pytest.raises(UsageError, match="write a"):
            translate(odd)
    with pytest.raises(UsageError, match="gpus_per_host: gpus 8 is no multiple of 3; write gpus 9"):
        GPUCluster("gpu-a", gpus=8, gpus_per_host=3)


@pytest.mark.slow
@pytest.mark.parametrize("limit", [None, 0])
def test_without_a_memory_limit_a_worker_keeps_to_none(limit: Any) -> None:
    def limits(dask_worker: Any) -> tuple[Any, ...]:
        manager = dask_worker.memory_manager
        return manager.memory_limit, type(dask_worker.data).__name__

    with GPUCluster("localhost gpus=none", n_workers=1, memory_limit=limit) as cluster:
        client = cluster.get_client()
        assert [*client.run(limits).values()] == [(None, "dict")]
        assert cluster.requested == cluster.observed
        client.close()
    assert translate({"device_memory_limit": None}).dask == {"gputui.device-memory-limit": 1.0}


def test_options_of_workers_and_cudf_become_what_these_read() -> None:
    meant = translate(
        {"memory_target_fraction": False, "lifetime": "1 hour"}
        | {"preload": "setup.py", "pre_import": "json,csv"}
        | {"env": {"A": 1}, "enable_cudf_spill": True, "cudf_spill_stats": 1}
    )
    assert meant.dask == {
        "distributed.worker.memory.target": False,
        "distributed.worker.lifetime.duration": "1 hour",
        "distributed.worker.preload": ["setup.py", "json", "csv"],
        "distributed.nanny.environ": {"A": 1, "CUDF_SPILL": "on", "CUDF_SPILL_STATS": "1"},
    }


@pytest.mark.long
def test_workers_killed_while_others_are_waited_for_and_scaled_harm_nothing() -> None:
    with GPUCluster(HOSTS, n_workers=3) as cluster, Client(cluster) as client:
        killed = 0
        while killed < 200:
            for pid in client.run(os.getpid, on_error="ignore").values():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    killed += 1
                cluster.wait_for_workers(1, timeout=60)  # its end arrives meanwhile
            for number in (1, 3):
                cluster.scale(number)
                cluster.wait_for_workers(number, timeout=60)
            assert client.submit(sum, [1, 2], pure=False).result(timeout=60) == 3
        assert len(cluster.observed) == 3
