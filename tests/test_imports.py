"""Modules import each other in one direction, those for types alone included."""

from graphlib import TopologicalSorter

import grimp


def test_no_module_imports_another_that_leads_back_to_it() -> None:
    graph = grimp.build_graph("gputui", cache_dir=None)
    imports = {
        name: graph.find_modules_directly_imported_by(name) - {name} for name in graph.modules
    }
    assert {"gputui.tui.app", "gputui.tui.frame"} <= imports.keys()
    TopologicalSorter(imports).prepare()  # raises CycleError, which names the modules
