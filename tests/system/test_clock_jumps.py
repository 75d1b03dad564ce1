"""The time of day is set while a cluster runs, on every process of it at once."""

import time

import pytest

from tests.system.conftest import Command, found
from tests.system.lab import HERE

LEASE_S = 4
LONGER_S = 2 * LEASE_S

CLOCK = """
import os, time
real, jump, seen = time.time, {path!r}, set()

def now():
    if not os.path.exists(jump):
        return real()
    if os.getpid() not in seen:
        seen.add(os.getpid())
        with open(os.path.join({clock!r}, str(os.getpid()) + ".txt"), "w") as file:
            file.write(open("/proc/self/cmdline").read())
    return real() + {seconds}

time.time = now
"""
SCRIPT = """
import os, time
from distributed import Client

def work(number):
    open({started!r}, "w").close()
    while not os.path.exists({jump!r}):
        time.sleep(0.05)
    set_at = time.monotonic()
    while time.monotonic() < set_at + {longer}:
        time.sleep(0.05)
    return number + 1

client = Client()
print(client.submit(work, 41).result(), client.submit(sum, [1, 2]).result())
"""


@pytest.mark.slow
@pytest.mark.parametrize("years", [-5, pytest.param(40, marks=pytest.mark.long)])
def test_a_clock_that_is_set_during_a_run_ends_nothing(gputui: Command, years: int) -> None:
    jump, started = gputui.folder / "jump", gputui.folder / "started"
    clock = gputui.folder / "clock"
    clock.mkdir()
    (clock / "sitecustomize.py").write_text(
        CLOCK.format(path=str(jump), clock=str(clock), seconds=years * 365 * 86400)
    )
    script = gputui.folder / "mine.py"
    script.write_text(SCRIPT.format(started=str(started), jump=str(jump), longer=LONGER_S))
    gputui.env |= {
        "PYTHONPATH": str(clock),
        "DASK_GPUTUI__LEASE": str(LEASE_S),
        "DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": "4s",
    }
    begun = time.monotonic()
    process = gputui.start(HERE, "--run", str(script))
    found(started.exists)
    jump.touch()
    said, warned = process.communicate(timeout=60)
    assert (process.returncode, said) == (0, "42 3\n"), warned
    assert "crashed" not in warned and "Traceback" not in warned, warned
    assert time.monotonic() - begun > LONGER_S
    seen = " ".join(path.read_text() for path in clock.glob("*.txt"))
    assert all(part in seen for part in ("gputui.head", "scheduler", "agent", "forkserver")), seen
    gputui.assert_nothing_left()
