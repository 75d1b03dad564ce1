"""A cluster of a kernel: what a cell shows, what it costs, and what is left of it at the end."""

import contextlib
import os
import queue
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("anywidget")
pytest.importorskip("nbclient")

from jupyter_client.manager import KernelManager
from nbclient import NotebookClient

from gputui import runs
from gputui.model.snapshot import RunState
from tests.clusters import TWO_WORKERS
from tests.notebook.lab import gpus
from tests.processes import marked
from tests.terminals import wait

pytestmark = pytest.mark.slow

START = f"from gputui import GPUCluster\ncluster = GPUCluster({TWO_WORKERS!r}, name='lab')"
WAITS = """
from gputui.presets import Outcome, Preset
def wait(job):
    import time
    return Outcome({"slept": job.results([job.submit(time.sleep, 60)])})
"""
VIEW = "application/vnd.jupyter.widget-view+json"
BOUND_S = 60


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Folders of its own, and a lease that is no help to an end that was asked for."""
    with tempfile.TemporaryDirectory(prefix="gt-") as name:
        for variable in ("XDG_RUNTIME_DIR", "XDG_STATE_HOME", "IPYTHONDIR"):
            monkeypatch.setenv(variable, name)
        monkeypatch.setenv("DASK_GPUTUI__LEASE", "60")
        monkeypatch.delenv("PYTEST_CURRENT_TEST", raising=False)
        yield Path(name)
        # A kernel that ends still writes its history.
        wait(lambda: not of_folder(Path(name)), "the kernel ends")


def of_folder(folder: Path) -> list[int]:
    """Return the processes of a test: its kernel, and those of clusters."""
    return marked(f"XDG_RUNTIME_DIR={folder}")


class Kernel:
    """A kernel that runs here."""

    def __init__(self, folder: Path) -> None:
        self.manager = KernelManager(kernel_name="python3")
        self.manager.start_kernel(cwd=str(folder))
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=BOUND_S)

    def run(self, code: str) -> str:
        said: list[str] = []

        def hook(message: dict[str, Any]) -> None:
            content = message["content"]
            html = content.get("data", {}).get("text/html", "")
            said.append(content.get("text", html) or "\n".join(content.get("traceback", ())))

        answer = self.client.execute_interactive(code, timeout=BOUND_S, output_hook=hook)
        assert answer["content"]["status"] == "ok", said
        return "".join(said).strip()

    def begin(self, code: str) -> str:
        """Execute a cell that goes on, until it says so; return its id."""
        # An error would have the kernel abort the cell that is sent next, for a moment.
        code = f"print('begun', flush=True)\n{code}"
        id = str(self.client.execute(code, stop_on_error=False))
        while True:
            message = self.client.get_iopub_msg(timeout=BOUND_S)
            if message["content"].get("text", "").startswith("begun"):
                return id

    def interrupt(self, id: str) -> None:
        """Interrupt a cell, and wait until it has ended by that."""
        self.manager.interrupt_kernel()
        while (answer := self.client.get_shell_msg(timeout=BOUND_S))["parent_header"][
            "msg_id"
        ] != id:
            continue
        assert answer["content"]["ename"] == "KeyboardInterrupt"

    @property
    def pid(self) -> int:
        return int(self.manager.provisioner.pid)


@pytest.fixture
def kernel(folder: Path) -> Iterator[Kernel]:
    kernel = Kernel(folder)
    try:
        yield kernel
    finally:
        with contextlib.suppress(RuntimeError):
            kernel.client.stop_channels()
            kernel.manager.shutdown_kernel(now=True)


def test_a_notebook_keeps_the_last_state_of_its_cluster_and_its_modules_reach_the_workers(
    folder: Path,
) -> None:
    import nbformat

    (folder / "beside.py").write_text("def twice(n):\n    return 2 * n\n")
    cells = (
        f"{START}\ncluster",
        "import beside\nfrom distributed import Client\nclient = Client(cluster)\n"
        "client.submit(beside.twice, 21).result()",
        "cluster.run('mean', rows=1000, cols=4)",
        "client.close()\ncluster.close()",
    )
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(each) for each in cells])
    client = NotebookClient(notebook, timeout=BOUND_S, kernel_name="python3")
    client.execute(cwd=str(folder))
    shown, computed, ran = (cell.outputs[0].data for cell in notebook.cells[:3])
    assert computed["text/plain"] == "42"
    assert "gputui runs show" in ran["text/html"] and "<RunResult mean(" in ran["text/plain"]
    assert "GPUCluster(lab" in shown["text/plain"]
    assert VIEW not in notebook.cells[0].outputs[1].data
    assert "lab: closed, 2 of 2 workers" in shown["text/html"]
    assert "localhost:cpu1" in shown["text/html"] and "mean: done" in shown["text/html"]


def test_modules_that_were_changed_reach_the_workers_with_the_next_client(
    kernel: Kernel, folder: Path
) -> None:
    module = folder / "beside.py"
    module.write_text("def number():\n    return 1\n")
    kernel.run(f"{START}\nimport beside, importlib\nfrom distributed import Client")
    kernel.run("client = Client(cluster)")
    assert kernel.run("print(client.submit(beside.number, pure=False).result())") == "1"
    module.write_text("def number():\n    return 12\n")
    kernel.run("importlib.reload(beside)\nanother = Client(cluster)")
    assert kernel.run("print(another.submit(beside.number, pure=False).result())") == "12"


def test_clients_in_tasks_do_not_preload_what_clients_of_the_notebook_do(kernel: Kernel) -> None:
    kernel.run(f"import dask.config\nfrom distributed import Client\n{START}")
    kernel.run(f"later = GPUCluster({TWO_WORKERS!r}, name='later')\nclient = Client(later)")
    preload = "dask.config.get, 'distributed.client.preload'"
    assert kernel.run("print(dask.config.get('distributed.client.preload'))") != "[]"
    assert kernel.run(f"print(client.submit({preload}).result(timeout=30))") == "[]"


def test_an_interrupted_start_leaves_nothing_and_the_kernel_goes_on(
    kernel: Kernel, folder: Path
) -> None:
    kernel.run("from gputui import GPUCluster")
    cell = kernel.begin(f"GPUCluster({TWO_WORKERS!r})")
    wait(lambda: len(of_folder(folder)) > 1, "the head starts")
    kernel.interrupt(cell)
    wait(lambda: of_folder(folder) == [kernel.pid], "nothing is left but the kernel")
    assert kernel.run("print(1 + 1)") == "2"


def test_an_interrupted_run_is_cancelled_and_its_cluster_goes_on(kernel: Kernel) -> None:
    kernel.run(f"{START}\n{WAITS}")
    cell = kernel.begin("cluster.run(Preset('wait', '', (), wait))")
    wait(lambda: [each.preset for each in runs.recorded()] == ["wait"], "it is recorded")
    kernel.interrupt(cell)
    wait(lambda: runs.recorded()[0].state is RunState.CANCELLED, "it is cancelled")
    assert kernel.run("print(cluster.run('smoke').result['all_right'])") == "True"


def test_an_asynchronous_cluster_is_shown_and_filled_in_afterwards(kernel: Kernel) -> None:
    kernel.run("from gputui import GPUCluster")
    kernel.run(f"cluster = await GPUCluster({TWO_WORKERS!r}, asynchronous=True)")
    kernel.run("cluster")
    places = "print(len(cluster._widget_shown.busy))"
    wait(lambda: kernel.run(places) == "2", "both workers have a place")
    kernel.run("await cluster.close()")
    assert kernel.run("print(cluster._widget_shown.about['ended'])") == "closed"
    assert "closed, 2 of 2 workers" in kernel.run("cluster")


def test_a_cluster_that_another_has_stopped_says_so(kernel: Kernel) -> None:
    kernel.run(f"{START}\nimport gputui\nheld = gputui.connect('lab')\nheld")
    kernel.run("cluster.close()")
    ended = "print(held._widget_shown.about['ended'])"
    wait(lambda: "the cluster was stopped" in kernel.run(ended), "it says so")
    assert "<strong>Workers:</strong>" in kernel.run("cluster")  # closed, and never shown before


def test_without_anywidget_a_cell_shows_the_table_of_dasks_clusters(kernel: Kernel) -> None:
    kernel.run(f"import sys\nsys.modules['anywidget'] = None\n{START}")
    assert "<strong>Workers:</strong>" in kernel.run("cluster")
    assert kernel.run("print(cluster._widget_shown)") == "None"


@pytest.mark.parametrize("how", ["restart", "shutdown", "SIGKILL"])
def test_a_kernel_that_ends_takes_its_clusters_along(
    kernel: Kernel, folder: Path, how: str
) -> None:
    kernel.run(f"{START}\ncluster")
    assert len(of_folder(folder)) > 4
    if how == "SIGKILL":
        os.kill(kernel.pid, signal.SIGKILL)
        wait(lambda: of_folder(folder) == [], "nothing is left")
    elif how == "restart":
        kernel.manager.restart_kernel()
        wait(lambda: of_folder(folder) == [kernel.pid], "nothing is left but the new kernel")
    else:
        kernel.manager.shutdown_kernel()
        wait(lambda: of_folder(folder) == [], "nothing is left")


@pytest.mark.alone
def test_sixty_four_gpus_take_little_of_a_core_and_of_a_connection(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with gpus(folder, 64) as env:
        for name, value in env.items():
            monkeypatch.setenv(name, value)
        kernel = Kernel(folder)
        try:
            kernel.run("from gputui import GPUCluster")
            kernel.run("cluster = GPUCluster('localhost gpus=all nthreads=1', workers=1)")
            kernel.run("cluster")
            cost = measured(kernel, 20)
            assert kernel.run("print(len(set(cluster._widget_shown.busy)))") > "10"
        finally:
            kernel.client.stop_channels()
            kernel.manager.shutdown_kernel(now=True)
    print(cost)
    assert cost["messages_per_s"] <= 1.3
    assert cost["bytes_per_s"] <= 5_000
    assert cost["core_percent"] <= 2.0


def measured(kernel: Kernel, seconds: float) -> dict[str, float]:
    """Return what a kernel that only shows its cluster sends, and what it computes."""
    session = kernel.client.session
    began, cpu = time.monotonic(), cpu_s(kernel.pid)
    sizes = []
    while (left := began + seconds - time.monotonic()) > 0:
        with contextlib.suppress(queue.Empty):
            message = kernel.client.get_iopub_msg(timeout=left)
            assert message["msg_type"] == "comm_msg", message["msg_type"]
            sizes.append(sum(map(len, session.serialize(message))))
    took = time.monotonic() - began
    return {
        "messages_per_s": round(len(sizes) / took, 2),
        "bytes_per_s": round(sum(sizes) / took),
        "core_percent": round(100 * (cpu_s(kernel.pid) - cpu) / took, 2),
    }


def cpu_s(pid: int) -> float:
    """Return what a process has computed. Source: proc_pid_stat(5)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
