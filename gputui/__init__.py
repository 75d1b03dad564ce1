"""gputui: from a file of hosts to a running, encrypted, observed cluster of GPU workers on Dask.

`GPUCluster` starts one, `connect` attaches to one that runs, `send_modules` gives one the modules
of a folder. They are loaded when first used, so that `import gputui` costs nothing.
"""

from importlib import import_module

from gputui.version import __version__

TYPE_CHECKING = False  # True to type checkers; importing typing takes a third of a program's start
if TYPE_CHECKING:
    from gputui.client.gpucluster import GPUCluster, connect
    from gputui.runs.modules import send_modules

__all__ = ["GPUCluster", "__version__", "connect", "send_modules"]


MODULES = {
    "GPUCluster": "gputui.client.gpucluster",
    "connect": "gputui.client.gpucluster",
    "send_modules": "gputui.runs.modules",
}


def __getattr__(name: str) -> object:
    if name in MODULES:
        return getattr(import_module(MODULES[name]), name)
    if name == "run":  # the name of gputui.runs up to 0.2.0, which people's own tests import
        return import_module("gputui.runs")
    raise AttributeError(f"module 'gputui' has no attribute {name!r}")
