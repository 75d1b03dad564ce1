"""What lies in the folder where gputui is started is no part of gputui."""

import sys
from pathlib import Path

import pytest

from tests.system.conftest import Command
from tests.system.lab import HERE

NAMES = (
    *("random", "queue", "statistics", "secrets", "ssl", "dask", "distributed", "numpy"),
    *("tornado", "yaml", "psutil", "click", "asyncssh", "cryptography", "pynvml", "msgpack"),
)
RAN = """
import os, pathlib, sys
with open({ran!r}, "a") as file:
    file.write(f"{{__file__}} in {{pathlib.Path('/proc/self/cmdline').read_bytes()}}\\n")
raise SystemExit("the working directory was run")
"""


@pytest.fixture
def poisoned(gputui: Command) -> Path:
    """The file that tells of each module of the working directory that is run."""
    ran = gputui.folder / "ran.log"
    for name in NAMES:
        (gputui.folder / f"{name}.py").write_text(RAN.format(ran=str(ran)))
    ran.touch()
    return ran


def test_no_process_of_a_cluster_runs_a_module_of_the_working_directory(
    gputui: Command, poisoned: Path
) -> None:
    gputui.env["PYTHONPATH"] = ":."
    done = gputui(HERE, "--run", "random-sum", "-p", "size=200", "--quiet")
    assert (done.returncode, poisoned.read_text()) == (0, ""), done.stderr


@pytest.mark.slow
def test_a_script_elsewhere_runs_no_module_of_the_working_directory(
    gputui: Command, poisoned: Path
) -> None:
    (gputui.folder / "away").mkdir()
    script = gputui.folder / "away" / "mine.py"
    script.write_text("from distributed import Client\nprint(Client().submit(abs, -3).result())\n")
    done = gputui(HERE, "--run", str(script), "--quiet")
    assert (done.returncode, done.stdout, poisoned.read_text()) == (0, "3\n", ""), done.stderr


SCRIPT = """
from distributed import Client
from gputui import GPUCluster
import qa_beside
if __name__ == "__main__":
    with GPUCluster({hosts!r}) as cluster, Client(cluster) as client:
        print(client.submit(qa_beside.where).result())
"""


@pytest.mark.slow
def test_tasks_find_the_modules_of_the_script_that_starts_the_cluster(gputui: Command) -> None:
    (gputui.folder / "qa_beside.py").write_text(
        "import os\ndef where():\n    return os.environ.get('PYTHONSAFEPATH'), __file__\n"
    )
    (gputui.folder / "mine.py").write_text(SCRIPT.format(hosts=HERE))
    done = gputui.run_other(sys.executable, "mine.py")
    assert done.stdout == f"(None, '{gputui.folder / 'qa_beside.py'}')\n", done.stderr
