"""Hosts where no process of others can be seen: /proc with hidepid, and a container."""

import os
import subprocess
from typing import Any

import pytest

from gputui.protocol.agent import Telemetry, WorkerExited, WorkerReady
from tests.agent.driving import Driver, client_of, start_worker
from tests.clusters import until
from tests.processes import marked

MARK = "GPUTUI_TEST_LEFT"
HIDDEN = (
    "mount -t proc -o hidepid=2,gid=1 proc /proc && "
    'exec setpriv --bounding-set=-sys_ptrace --clear-groups "$@"'
)
"""What starts so sees itself and what it starts, and no other process."""
WORLDS = {
    "hidden": ("unshare", "--mount", "sh", "-c", HIDDEN, "sh"),
    "container": ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child"),
}


def leave_a_process_and_die(mark: str) -> None:
    subprocess.Popen(["sleep", "600"], start_new_session=True, env={**os.environ, MARK: mark})
    os.kill(os.getpid(), 9)


@pytest.fixture(params=WORLDS)
def world(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """A command that starts another, which sees no process of this one's."""
    before = WORLDS[request.param]
    if subprocess.run([*before, "true"], capture_output=True).returncode:
        pytest.skip("no namespaces can be made here")
    look = [*before, "test", "-e", f"/proc/{os.getppid()}/stat"]
    assert subprocess.run(look, capture_output=True).returncode
    return before


@pytest.mark.slow
async def test_an_agent_that_sees_no_process_of_others_reads_its_workers_and_leaves_nothing(
    driver: Driver, scheduler: Any, world: tuple[str, ...]
) -> None:
    driver.before = world
    await driver.connect()
    await start_worker(driver, scheduler)
    reading = await driver.wait_for(Telemetry, lambda told: told.workers[0].open_files)
    assert reading.workers[0].rss_bytes > 2**20
    assert reading.host.memory_used_bytes > 2**20
    async with client_of(scheduler) as client:
        doomed = client.submit(leave_a_process_and_die, driver.cluster_id)
        assert (await driver.wait_for(WorkerExited)).kind == "signal"
        doomed.release()
        await driver.wait_for(WorkerReady)
        await until(lambda: not marked(f"{MARK}={driver.cluster_id}"))
