"""Runs of presets on real workers: progress, choice of workers, cancelling, and faults."""

import asyncio
import base64
import operator
import os
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from distributed import Client, LocalCluster, Status, get_worker

from gputui import presets
from gputui.errors import ClusterError, RunError, UsageError
from gputui.presets import Outcome, Parameter, Preset, RunCancelledError, RunWorker
from gputui.presets.job import Job
from gputui.presets.workers import refuse_unfit
from gputui.runs import execution
from tests.clusters import until


@pytest.fixture(scope="module")
def connected() -> Iterator[Client]:
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as connected,
    ):
        yield connected


@pytest.fixture
def client(connected: Client) -> Client:
    """The one client, once the worker that a test before this killed is back."""
    connected.wait_for_workers(2, timeout=30)
    return connected


def doing(compute: Any, **parameters: int) -> Preset:
    given = tuple(Parameter(name, int, value, "") for name, value in parameters.items())
    return Preset("made", "for a test", given, compute)


def test_progress_is_reported_to_the_end(client: Client) -> None:
    seen: list[execution.RunProgress] = []
    execution.execute(client, presets.get("random-sum"), {"size": 3000}, report=seen.append)
    assert seen[-1].done == seen[-1].total > 0
    assert seen[-1].stage == "drawing and adding"


def test_the_workers_are_known_whatever_the_client_asks_for_meanwhile(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every two seconds a client takes a new look at its scheduler, without the workers."""
    sync = client.sync

    def and_look(*arguments: Any, **named: Any) -> Any:
        found = sync(*arguments, **named)
        sync(client._update_scheduler_info)
        return found

    monkeypatch.setattr(client, "sync", and_look)
    assert len(execution.execute(client, presets.get("random-sum"), {"size": 100}).workers) == 2


def test_only_the_named_workers_are_used(client: Client) -> None:
    result = execution.execute(client, presets.get("smoke"), {}, workers=["1"])
    assert [row["worker"] for row in result.result["workers"]] == ["1"]


def test_a_worker_that_is_not_there_is_refused(client: Client) -> None:
    with pytest.raises(ClusterError, match="no worker is named 7"):
        execution.execute(client, presets.get("smoke"), {}, workers=["7"])


def test_an_unknown_backend_is_refused(client: Client) -> None:
    with pytest.raises(UsageError, match="must be one of auto, cupy, numpy"):
        execution.execute(client, presets.get("smoke"), {}, backend="jax")


@pytest.mark.skipif(Path("/proc/driver/nvidia").exists(), reason="a GPU is here")
def test_where_no_gpu_is_nobody_is_told_to_install_cupy(client: Client) -> None:
    with pytest.raises(ClusterError, match=r"0, 1 cannot use one: .*(libcuda|CUDA)") as caught:
        execution.execute(client, presets.get("smoke"), {}, backend="cupy")
    assert "with the backend numpy" in str(caught.value)
    assert "pip install" not in str(caught.value)


def test_a_gpu_without_cupy_is_said_with_the_install_line() -> None:
    worker = RunWorker("localhost:gpu0", "tls://a", "a", "0", "GPU-1", 1, 2**30, missing=("cupy",))
    with pytest.raises(ClusterError, match=r"needs cupy.*\n.*pip install 'gputui\[cuda1"):
        refuse_unfit(presets.get("smoke"), [worker])


def test_a_notebook_shows_a_results_table_and_figure(client: Client) -> None:
    pytest.importorskip("matplotlib")
    result = execution.execute(client, presets.get("mean"), {"rows": 1000, "cols": 4})
    shown = result._repr_html_()
    assert "<b>mean on 2 workers (numpy)" in shown
    assert f"<pre>mean  {result.result['mean']:,.10g}</pre>" in shown
    image = re.search(r'src="data:image/png;base64,([^"]+)"', shown)
    assert image and base64.b64decode(image[1]).startswith(b"\x89PNG")
    assert repr(result).startswith("<RunResult mean(rows=1000, cols=4,")
    table = replace(result, result={"rows": [{"name": "<b>", "took_s": 0.5}]}, figure=None)
    assert "name  took s\n&lt;b&gt;   0.5" in table._repr_html_()


def test_a_preset_from_a_file_runs_on_workers_that_do_not_have_it(
    client: Client, tmp_path: Path
) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "from gputui.presets import Outcome, Parameter, Preset\n"
        "def twice(n):\n    return 2 * n\n"
        "def compute(job):\n"
        "    return Outcome({'sum': sum(job.results(job.map(twice, range(job['n']))))})\n"
        "thing = Preset('thing', 'a test', (Parameter('n', int, 4, ''),), compute)\n"
    )
    assert execution.execute(client, presets.get(f"{path}:thing"), {}).result == {"sum": 12}


def test_cancelling_from_another_thread_ends_the_run_and_its_tasks(client: Client) -> None:
    cancel = threading.Event()
    preset = doing(lambda job: Outcome({"x": job.results(job.map(time.sleep, [0.5] * 200))}))
    threading.Timer(0.3, cancel.set).start()
    with pytest.raises(RunCancelledError):
        execution.execute(client, preset, {}, cancel=cancel)
    assert all(not keys for keys in _waiting(client))


def test_a_failed_run_leaves_the_client_connected(client: Client) -> None:
    def compute(job: Job) -> Outcome:
        wrong = job.submit(int, "three")
        unwanted = job.submit(str, wrong)
        last = job.submit(len, unwanted)
        unwanted.release()
        return Outcome({"x": job.results([wrong]), "last": last})

    with pytest.raises(RunError, match="ValueError"):
        execution.execute(client, doing(compute), {})
    assert client.submit(len, "four", pure=False).result(timeout=60) == 4


def _waiting(client: Client) -> list[list[str]]:
    """Return the sleeps that are still to be started, once the scheduler has had its time."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        held = client.run_on_scheduler(
            lambda dask_scheduler: [k for k in dask_scheduler.tasks if "sleep" in str(k)]
        )
        if not held:
            return []
        time.sleep(0.05)
    return [held]


class Adder:
    def __call__(self, n: int) -> int:
        return n + 1


@pytest.mark.parametrize("function", [partial(max, 4), lambda n: n + 1, Adder(), operator.neg])
def test_whatever_can_be_called_can_be_a_task(client: Client, function: Any) -> None:
    preset = doing(lambda job: Outcome({"x": job.results([job.submit(function, 3)])[0]}))
    assert execution.execute(client, preset, {}).result == {"x": function(3)}


def test_the_example_for_authors_runs_as_it_is(client: Client, tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(dedent("\n".join(re.findall(r"^    .*|^$", presets.__doc__, re.MULTILINE))))
    result = execution.execute(client, presets.get(f"{path}:PRESET"), {"count": 2}).result
    assert result["norms"] == pytest.approx([577, 577], rel=0.01)


WRONG = """
import queue
from gputui.presets import Figure, Outcome, Parameter, Preset

def compute(job):
    if job["n"] == 0: return {"x": 1}
    if job["n"] == 1: return Outcome([1])
    if job["n"] == 2: raise SystemExit(3)
    if job["n"] == 3: return Outcome({}, Figure("pie", "x"))
    if job["n"] == 4: return Outcome({}, Figure("line", "x", y=(1.0,)))
    return Outcome({"x": job.results(job.map(inverse, [4, 6 - job["n"]]))})

def inverse(n):
    if n == 0: raise queue.Empty
    return 1 / (n - 1)

PRESET = Preset("wrong", "a test", (Parameter("n", int, 0, ""),), compute)
"""


@pytest.mark.parametrize(
    ("n", "says"),
    [
        (0, "wrong returned a dict; compute returns Outcome"),
        (1, "wrong returned a list; compute returns Outcome"),
        (2, r"SystemExit: 3 \(wrong.py:8, in compute\)"),
        (3, "a figure is one of line, bar, heat, not 'pie'"),
        (4, r"a line has as many x as y, not \(0, 1\)"),
        (5, r"wrong failed: ZeroDivisionError: division by zero \(wrong.py:15, in inverse\)"),
        (6, "wrong failed: Empty"),
    ],
)
def test_whoever_writes_a_preset_is_told_what_is_wrong_and_where(
    client: Client, tmp_path: Path, n: int, says: str
) -> None:
    path = tmp_path / "wrong.py"
    path.write_text(WRONG)
    with pytest.raises(RunError, match=says):
        execution.execute(client, presets.get(str(path)), {"n": n})


def test_running_out_of_memory_says_what_to_change(client: Client) -> None:
    def exhaust(n: int) -> None:
        raise MemoryError("Out of memory allocating 12,000,000,000 bytes")

    preset = doing(lambda job: Outcome({"x": job.results([job.submit(exhaust, 1)])}))
    where = r"on \d, where a task may take [\d.]+ GiB: Out of memory allocating.*"
    with pytest.raises(RunError, match=rf"ran out of memory {where}\n  use smaller chunks"):
        execution.execute(client, preset, {})


def _occupy(client: Client) -> list[Any]:
    return [client.submit(time.sleep, 1, workers=[1], pure=False) for _ in range(2)]


def _where(job: Job) -> Outcome:
    return Outcome({"on": job.each_worker(lambda: str(get_worker().name))})


def test_a_worker_that_is_busy_is_waited_for_not_left_out(client: Client) -> None:
    busy = _occupy(client)
    seen = execution.execute(client, doing(_where), {})
    assert all(each.done() for each in busy)
    assert seen.result["on"] == [worker.name for worker in seen.workers] == ["0", "1"]


def test_a_task_for_a_worker_that_got_busy_is_not_done_by_another(client: Client) -> None:
    def compute(job: Job) -> Outcome:
        return replace(Outcome({}, arrays={"busy": _occupy(client)}), result=_where(job).result)

    assert execution.execute(client, doing(compute), {}).result["on"] == ["0", "1"]


def _die_once(flag: str) -> int:
    """Kill this worker the first time, and no other one that comes here at the same moment."""
    try:
        Path(flag).touch(exist_ok=False)
    except FileExistsError:
        return os.getpid()
    os.kill(os.getpid(), 9)
    return 0


@pytest.mark.parametrize("pinned", [True, False])
def test_a_worker_killed_in_the_middle_does_not_change_the_result(
    client: Client, tmp_path: Path, pinned: bool
) -> None:
    flag = str(tmp_path / "died")

    def compute(job: Any) -> Outcome:
        if pinned:
            return Outcome({"pids": job.each_worker(_die_once, flag)})
        return Outcome({"pids": job.results(job.map(_die_once, [flag] * 4))})

    result = execution.execute(client, doing(compute), {})
    assert len(result.result["pids"]) == (2 if pinned else 4)


def test_the_task_of_a_lost_worker_goes_on_elsewhere_however_it_is_waited_for(
    client: Client, tmp_path: Path
) -> None:
    flag = str(tmp_path / "died")

    def compute(job: Job) -> Outcome:
        done = job.submit(len, [job.on(each, _die_once, flag) for each in job.workers])
        again = job.submit(len, [job.on(each, os.getpid) for each in job.workers])
        return Outcome({"tasks": done.result(timeout=20), "again": again.result(timeout=20)})

    assert execution.execute(client, doing(compute), {}).result == {"tasks": 2, "again": 2}


def _pause(dask_worker: Any) -> int:
    dask_worker.memory_manager.memory_pause_fraction = False  # or it resumes in 100 ms
    dask_worker.status = Status.paused
    return os.getpid()


def _is_paused(address: str, dask_scheduler: Any) -> bool:
    return bool(dask_scheduler.workers[address].status == Status.paused)


def _unrunnable(dask_scheduler: Any) -> bool:
    return bool(dask_scheduler.unrunnable)


def test_the_task_of_a_paused_worker_goes_on_elsewhere_when_that_one_dies(client: Client) -> None:
    def compute(job: Job) -> Outcome:
        address = job.workers[0].address
        pid = client.run(_pause, workers=[address])[address]
        asyncio.run(until(lambda: client.run_on_scheduler(_is_paused, address)))
        task = job.on(job.workers[0], os.getpid)
        asyncio.run(until(lambda: client.run_on_scheduler(_unrunnable)))
        os.kill(pid, 9)
        return Outcome({"again": task.result(timeout=20) != pid})

    assert execution.execute(client, doing(compute), {}).result == {"again": True}
