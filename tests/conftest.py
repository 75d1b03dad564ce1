"""Fixtures that all tests may use, and turns between tests that run at the same time."""

import fcntl
import gc
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from gputui.process.lifetime import look_rarely
from tests.slurm import confined_slurm, slurm  # noqa: F401
from tests.sshd import (  # noqa: F401
    asyncssh_hosts,
    namespace_hosts,
    openssh_hosts,
    ssh_folder,
    start_asyncssh,
)

os.environ.pop("PYTHONUNBUFFERED", None)
"""Few users set it, and with it a task's `print` is seen whatever a worker does."""

signal.signal(signal.SIGINT, signal.default_int_handler)
"""A shell has what it starts with `&` ignore SIGINT, and every process below inherits that."""

LONGEST_FIRST = ("tests/system", "tests/head", "tests/test_cluster", "tests/presets", "tests/agent")


def pytest_configure(config: pytest.Config) -> None:
    """Have pytest-xdist hand out modules in their order, not by how many tests they have.

    No garbage is looked for while tests are imported, which drops little.
    """
    gc.disable()
    if hasattr(config.option, "loadscopereorder"):
        config.option.loadscopereorder = False


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what starts clusters: no long module is left for the end."""
    items.sort(key=lambda item: not item.nodeid.startswith(LONGEST_FIRST))


def pytest_collection_finish() -> None:
    """Look for garbage rarely: a tenth of the time of tests of the screen."""
    look_rarely()
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def _claims(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep claims of tests that run at the same time apart: they have the same made-up GPUs."""
    folder = tmp_path_factory.mktemp("claims")
    folder.chmod(0o1777)
    os.environ["GPUTUI_CLAIMS"] = str(folder)


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for what runs and what was run, with a path that is short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="gt-") as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        monkeypatch.setenv("XDG_STATE_HOME", folder)
        yield Path(folder)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder in /tmp that every user may reach: pytest closes its own to others.

    Those that killed tests left are removed.
    """
    for left in Path("/tmp").glob("gputui-test-*"):
        if not Path(f"/proc/{left.name.split('-')[2]}").exists():
            shutil.rmtree(left, ignore_errors=True)
    prefix = f"gputui-test-{os.getpid()}-"
    with tempfile.TemporaryDirectory(prefix=prefix, dir="/tmp") as folder:
        Path(folder).chmod(0o1777)
        yield Path(folder)


@pytest.fixture(autouse=True)
def _turn(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """Give a test marked `alone` the machine to itself, under pytest-xdist.

    All others share a lock that such a test takes exclusively. Both pass a gate, so that those
    that begin later wait for the one that waits.
    """
    if "PYTEST_XDIST_WORKER" not in os.environ:
        yield
        return
    alone = request.node.get_closest_marker("alone") is not None
    common = tmp_path_factory.getbasetemp().parent
    with (common / "turns").open("a") as turns, (common / "gate").open("a") as gate:
        fcntl.flock(gate, fcntl.LOCK_EX)
        fcntl.flock(turns, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        if not alone:
            fcntl.flock(gate, fcntl.LOCK_UN)
        yield
