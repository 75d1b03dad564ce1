"""JupyterLab on this machine, and a browser that shows a notebook in it."""

import contextlib
import json
import math
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.terminals import wait

CHROMIUM = Path("/usr/bin/chromium")
QUIET = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
FAKES = Path(__file__).parents[1] / "fakes"
BOUND_S = 60


def fake_gpus(number: int, second: int) -> dict[str, Any]:
    """Return GPUs that are more and less busy as time goes by."""
    gpus = []
    for index in range(number):
        busy = round(75 - 5 * (index % 5) + 20 * math.sin(second / 7 + 2 * index))
        gpus.append(
            {
                "utilization": busy,
                "used_mib": 9_000 + 90_000 * ((index * 3) % 8) // 8 + 40 * (second % 30),
                "power_mw": 90_000 + 5_600 * busy,
                "temperature": 35 + busy // 3,
            }
        )
    return {"gpus": gpus}


@contextlib.contextmanager
def gpus(folder: Path, number: int) -> Iterator[dict[str, str]]:
    """Play a machine's GPUs; yield the environment in which they are seen."""
    path, done = folder / "nvml.json", threading.Event()

    def play() -> None:
        second = 0
        while True:
            new = path.with_suffix(".new")
            new.write_text(json.dumps(fake_gpus(number, second)))
            new.rename(path)
            second += 1
            if done.wait(1):
                return

    player = threading.Thread(target=play)
    player.start()
    try:
        yield {"PYTHONPATH": str(FAKES), "GPUTUI_FAKE_NVML": str(path)}
    finally:
        done.set()
        player.join()


def write_notebook(path: Path, cells: Sequence[str]) -> None:
    import nbformat

    made = [nbformat.v4.new_code_cell(text, id=f"cell-{i}") for i, text in enumerate(cells)]
    notebook = nbformat.v4.new_notebook(cells=made)
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3"}
    nbformat.write(notebook, path)


@contextlib.contextmanager
def jupyterlab(folder: Path, env: dict[str, str], theme: str = "light") -> Iterator[str]:
    settings = folder / ".jupyter/lab/user-settings/@jupyterlab/apputils-extension"
    settings.mkdir(parents=True)
    for name, given in {
        "themes": {"theme": f"JupyterLab {theme.capitalize()}"},
        "notification": {"fetchNews": "false", "checkForUpdates": False},
    }.items():
        (settings / f"{name}.jupyterlab-settings").write_text(json.dumps(given))
    own = {name: str(folder / ".jupyter") for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR")}
    own |= {"JUPYTER_RUNTIME_DIR": str(folder / ".runtime"), "IPYTHONDIR": str(folder / ".ipython")}
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root"]
    command += ["--ServerApp.port=0", "--ServerApp.ip=127.0.0.1", "--IdentityProvider.token="]
    command += ["--LabApp.expose_app_in_browser=True", f"--ServerApp.root_dir={folder}"]
    with (folder / "jupyter.log").open("wb") as log:
        server = subprocess.Popen(command, env=os.environ | env | own, stderr=log, stdout=log)
    try:
        yield wait(lambda: _url(folder / ".runtime"), "JupyterLab listens")
    finally:
        server.terminate()
        try:
            server.wait(10)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def _url(runtime: Path) -> str:
    for path in runtime.glob("jpserver-*.json"):
        with contextlib.suppress(ValueError):
            return str(json.loads(path.read_text())["url"])
    return ""


@contextlib.contextmanager
def page(folder: Path, url: str, notebook: str) -> Iterator[Any]:
    """Open a notebook in JupyterLab; yield the page."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch_persistent_context(
            str(folder / ".chromium"),
            executable_path=str(CHROMIUM),
            args=QUIET,
            viewport={"width": 1180, "height": 900},
        )
        shown = browser.pages[0]
        try:
            shown.goto(f"{url}doc/tree/{notebook}")
            shown.wait_for_selector(".jp-Notebook .jp-Cell", timeout=1000 * BOUND_S)
            status = (
                "window.jupyterapp?.shell.currentWidget?.sessionContext?.session?.kernel?.status"
            )
            shown.wait_for_function(f"{status} === 'idle'", timeout=1000 * BOUND_S)
            yield shown
        except BaseException:
            shown.screenshot(path="review.png")
            raise
        finally:
            browser.close()


def run(page: Any, command: str, arguments: dict[str, Any] | None = None) -> None:
    page.wait_for_function("c => window.jupyterapp?.commands.isEnabled(c)", arg=command)
    page.evaluate(
        "([c, a]) => void window.jupyterapp.commands.execute(c, a)", [command, arguments or {}]
    )
