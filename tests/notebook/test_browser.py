"""The widget in JupyterLab, in a real browser."""

import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.clusters import TWO_WORKERS
from tests.notebook.lab import CHROMIUM, jupyterlab, page, run, write_notebook
from tests.processes import command_of, marked
from tests.terminals import wait

pytest.importorskip("anywidget")
pytest.importorskip("jupyterlab")
pytest.importorskip("playwright")

import nbformat
from nbconvert import HTMLExporter
from nbformat.sign import NotebookNotary

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not CHROMIUM.exists(), reason="needs Chromium")]

EVIL = "<img src=x>"
CELLS = (
    f"from gputui import GPUCluster\n"
    f"from gputui.presets import Figure, Outcome, Preset\n"
    f"cluster = GPUCluster({TWO_WORKERS.replace('workers=2', 'workers=3')!r}, workers=2)\n"
    f"cluster",
    f"figure = Figure('bar', {EVIL!r}, labels=({EVIL!r}, 'b'), y=(2.0, 1.0))\n"
    f"made = Preset({EVIL!r}, '', (), lambda job: Outcome({{'a': 1}}, figure), draws=True)\n"
    f"cluster.run(made).result",
    f"point = Figure('line', {EVIL!r}, x=(1,), y=(2.0,))\n"
    f"made = Preset('point', '', (), lambda job: Outcome({{'a': 1}}, point), draws=True)\n"
    f"cluster.run(made).result",
    "cluster.close()",
)
MOST_MS = 60_000
LIVE = ".jp-OutputArea-child:has(td) + .jp-OutputArea-child > .jp-OutputArea-output"
"""The output of the live widget, which stands below the last state; a warning may stand above."""


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="gt-") as name:
        yield Path(name)


@pytest.fixture(scope="module")
def url(folder: Path) -> Iterator[str]:
    for name in ("fleet", "seen", "killed"):
        write_notebook(folder / f"{name}.ipynb", CELLS)
    env = {"XDG_RUNTIME_DIR": str(folder), "XDG_STATE_HOME": str(folder / "state")}
    with jupyterlab(folder, env, "dark") as url:
        yield url


def execute(shown: Any, cell: int) -> None:
    shown.click(f".jp-InputPrompt >> nth={cell}")
    run(shown, "notebook:run-cell")


def says(shown: Any, selector: str, text: str) -> None:
    holds = "([at, text]) => document.querySelector(at)?.textContent === text"
    shown.wait_for_function(holds, arg=[selector, text], timeout=MOST_MS)


def send(folder: Path, signal_: signal.Signals) -> None:
    for pid in marked(f"XDG_RUNTIME_DIR={folder}"):
        if "ipykernel_launcher" in command_of(pid):
            os.kill(pid, signal_)


def test_a_cell_shows_the_fleet_scales_it_and_keeps_its_last_state(folder: Path, url: str) -> None:
    with page(folder, url, "fleet.ipynb") as shown:
        execute(shown, 0)
        shown.wait_for_selector(".gputui .place", timeout=MOST_MS)
        assert shown.locator(".gputui .place").all_inner_texts() == [
            "localhost:cpu0",
            "localhost:cpu1",
        ]
        light = (
            "node => getComputedStyle(node).color.match(/\\d+/g).slice(0, 3).every(c => c > 200)"
        )
        assert shown.locator(".gputui .place").first.evaluate(light)
        shown.wait_for_function(
            "document.querySelector('.gputui .rows .spark path').getAttribute('d').length > 30"
        )
        shown.click(".gputui .scale button >> nth=1")
        says(shown, ".gputui .scale span", "3 workers")
        assert shown.locator(".gputui .place").count() == 3
        shown.click(".gputui .scale button >> nth=1")
        says(shown, ".gputui .said", "0 start, 0 stop; there is room for 3 only")
        shown.click(".gputui .scale button >> nth=0")
        says(shown, ".gputui .scale span", "3 workers")
        shown.click(".gputui .kind")
        assert shown.locator(".gputui .cell").count() == 3
        execute(shown, 1)
        says(shown, ".gputui .run b", EVIL)
        says(shown, ".gputui .drawn .title", EVIL)
        execute(shown, 2)
        shown.wait_for_selector(".gputui .drawn circle", timeout=MOST_MS)
        assert shown.locator(".gputui img").count() == 0
        execute(shown, 3)
        shown.wait_for_selector("td:has-text('localhost:cpu2')", timeout=MOST_MS)
        assert shown.locator(".gputui").count() == 0
        run(shown, "docmanager:save")
        wait(lambda: "closed, 3 of 3 workers" in (folder / "fleet.ipynb").read_text(), "saved")


def test_a_widget_out_of_sight_is_not_drawn_and_one_without_a_kernel_says_since_when(
    folder: Path, url: str
) -> None:
    changes = """() => new Promise(done => {
        let changes = 0;
        const watch = new MutationObserver(() => changes++);
        const parts = {subtree: true, childList: true, attributes: true, characterData: true};
        watch.observe(document.querySelector(".gputui"), parts);
        setTimeout(() => done(changes), 4000);
    })"""
    with page(folder, url, "seen.ipynb") as shown:
        execute(shown, 0)
        shown.wait_for_selector(".gputui .place", timeout=MOST_MS)
        assert shown.evaluate(changes) > 0
        shown.evaluate("document.querySelector('.gputui').parentNode.style.display = 'none'")
        assert shown.evaluate(changes) <= 1
        shown.evaluate("document.querySelector('.gputui').parentNode.style.display = ''")
        assert shown.evaluate(changes) > 0
        send(folder, signal.SIGSTOP)
        since = ".gputui.stale .head .state:has-text('no news since')"
        shown.wait_for_selector(since, timeout=MOST_MS)
        assert shown.locator(".gputui .scale button:enabled").count() == 0
        send(folder, signal.SIGCONT)
        shown.wait_for_selector(".gputui:not(.stale)", timeout=MOST_MS)
        assert not shown.locator("td:has-text('localhost:cpu0')").is_visible()


def test_a_notebook_shows_its_last_state_and_no_error_where_its_kernel_is_gone(
    folder: Path, url: str
) -> None:
    path, other = folder / "killed.ipynb", folder / "other.ipynb"
    with page(folder, url, path.name) as shown:
        execute(shown, 0)
        shown.wait_for_selector(".gputui .place", timeout=MOST_MS)
        run(shown, "docmanager:save")
        wait(lambda: "2 of 2 workers" in path.read_text(), "saved")
        send(folder, signal.SIGKILL)
        shown.reload()
        shows_the_last_state_only(shown, "Error displaying widget: model not found")

        notebook = nbformat.read(path, 4)
        notebook.metadata = {"kernelspec": {"name": "none", "display_name": "", "language": "none"}}
        nbformat.write(notebook, other)
        NotebookNotary(data_dir=str(folder / ".jupyter")).sign(nbformat.read(other, 4))
        shown.goto(f"{url}doc/tree/{other.name}")
        shown.click(".jp-Dialog button:has-text('No Kernel')", timeout=MOST_MS)
        shows_the_last_state_only(shown, "Loading widget...")

        page_, _ = HTMLExporter().from_filename(path)
        (folder / "killed.html").write_text(page_)
        shown.goto(f"file://{folder}/killed.html")
        shown.wait_for_selector("td:has-text('localhost:cpu0')")
        assert shown.locator(LIVE).inner_text().strip() == ""


def shows_the_last_state_only(shown: Any, instead: str) -> None:
    """Wait until JupyterLab has given the widget up, which it shows to nobody."""
    shown.wait_for_selector("td:has-text('localhost:cpu0')", timeout=MOST_MS)
    shown.wait_for_selector(f"text={instead}", state="attached", timeout=MOST_MS)
    assert not shown.locator(f"text={instead}").is_visible()
