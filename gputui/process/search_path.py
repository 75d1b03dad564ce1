"""The search paths for modules: of gputui's own processes, and of tasks.

What gputui starts for itself ignores the working directory: a `random.py` in it is no
part of it. Tasks find the modules that the starter of their cluster finds, as under LocalCluster.
Nothing that may be shadowed there is imported at the top of this module.
"""

import os
import sys

TASK_PATH = "GPUTUI_TASK_PATH"
"""In the environment of a cluster on this machine: folders of modules that tasks may name."""

PACKAGE_PARENT = __file__.rpartition("/gputui/process/")[0]
"""Where gputui itself is found."""


def own_python(module: str) -> list[str]:
    """Return the command that runs a module of gputui, in an interpreter like this one."""
    return [sys.executable, "-P", "-m", module]


def ignore_working_directory() -> None:
    """Find no module in the working directory from now on, unless PYTHONPATH has its full name."""
    try:
        here = {"", os.getcwd()} - {*_given()}  # noqa: PTH109 - pathlib may be shadowed there
    except FileNotFoundError:
        here = {""}
    sys.path[:] = [path for path in sys.path if path not in here]


def own_environment() -> dict[str, str]:
    """Return the environment of `own_python`: it finds gputui, and no folder of tasks.

    An empty or relative entry of PYTHONPATH is the working directory, or is in it.
    """
    own = [] if _is_installed(PACKAGE_PARENT) else [PACKAGE_PARENT]
    path = dict.fromkeys([*_given(), *own])
    return {"PYTHONPATH": os.pathsep.join(path), TASK_PATH: os.pathsep.join(_task_path())}


def add_task_path() -> None:
    """Find the modules that tasks name, after Python's own and before the installed ones."""
    import sysconfig

    given = [path for path in os.environ.get(TASK_PATH, "").split(os.pathsep) if path]
    installed = {sysconfig.get_path(kind) for kind in ("purelib", "platlib")}
    at = next((at for at, path in enumerate(sys.path) if path in installed), len(sys.path))
    sys.path[at:at] = [path for path in given if path not in sys.path]


def _task_path() -> list[str]:
    """Return the folders on this interpreter's path that are not part of its installation."""
    found = dict.fromkeys(map(os.path.abspath, sys.path))
    folders = filter(os.path.isdir, found)  # a head waits for this: without pathlib
    return [path for path in folders if not _is_installed(path)]


def _given() -> list[str]:
    """Return the full names of folders in PYTHONPATH."""
    return [*filter(os.path.isabs, os.environ.get("PYTHONPATH", "").split(os.pathsep))]


def _is_installed(path: str) -> bool:
    return path.startswith((f"{sys.prefix}/", f"{sys.base_prefix}/"))
