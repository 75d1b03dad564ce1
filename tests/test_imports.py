"""Modules import each other in one direction, those for types alone included, and few at first."""

import subprocess
import sys
from graphlib import TopologicalSorter

import grimp
import pytest


def test_no_module_imports_another_that_leads_back_to_it() -> None:
    graph = grimp.build_graph("gputui", cache_dir=None)
    imports = {
        name: graph.find_modules_directly_imported_by(name) - {name} for name in graph.modules
    }
    assert {"gputui.tui.app", "gputui.tui.frame"} <= imports.keys()
    TopologicalSorter(imports).prepare()  # raises CycleError, which names the modules


DASK = ("distributed", "dask", "numpy")
NOT_AT_FIRST = (
    "gputui.protocol",
    "gputui.client.head_connection",
    "gputui.tui.dialogs",
    "gputui.tui.commands.changes",
    "gputui.tui.commands.person",
    "gputui.presets",
    "gputui.folders",
    "importlib.metadata",
)
FRAME = "import gputui.tui.app, gputui.tui.views.lists"
FEW = {
    "the first frame": (FRAME, (*NOT_AT_FIRST, "gputui.process.procfs")),
    "the screen's command": (f"{FRAME}, gputui.cli.screen", NOT_AT_FIRST),
    "a list of presets": (
        "from gputui import presets; [presets.get(name) for name in presets.names()]",
        (*DASK, "cupy", "pandas"),
    ),
    "a head, begun early": (
        "import gputui.cli, gputui.client.head_process as begun\nwith begun.begun_head(): ...",
        ("gputui.process.procfs", "click", "dataclasses", "pathlib", "msgspec"),
    ),
    "a program's parent": (
        "import gputui.agent.__main__, gputui.agent.program_parent",
        ("typing", "dataclasses", "pathlib", "gputui.process.procfs"),
    ),
    "the demo": ("import gputui.demo.cluster", (*DASK, "asyncssh", "cryptography", "textual")),
}
"""What is done → the modules that it does without."""


@pytest.mark.parametrize("done", FEW)
def test_what_is_there_at_once_waits_for_no_module_that_it_needs_later(done: str) -> None:
    code, later = FEW[done]
    code = f"import sys\n{code}\nprint([m for m in sys.modules if m.startswith({later})])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
