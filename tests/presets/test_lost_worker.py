"""A worker is killed in the middle of each preset: the result is the same."""

import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from distributed import Client, LocalCluster

from gputui import presets
from gputui.runs import execution

SMALL: dict[str, dict[str, Any]] = {
    "smoke": {},
    "svd": {"rows": 40_000, "cols": 100, "check": True},
    "random-sum": {"size": 8_000},
    "mean": {"rows": 400_000},
    "matmul": {"size": 1_500, "block": 300},
    "convert": {"mebibytes": 16},
    "transfer": {"mebibytes": 16},
    "dataframe": {"rows": 2_000_000},
}
SAME = {
    "svd": "singular_values",
    "random-sum": "sum",
    "mean": "mean",
    "dataframe": "regions",
}
"""What of a result does not depend on how fast it went."""


@pytest.fixture
def client() -> Iterator[Client]:
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as connected,
    ):
        yield connected


EVERY_TIME = ("svd", "mean")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [each if each in EVERY_TIME else pytest.param(each, marks=pytest.mark.long) for each in SMALL],
)
def test_a_worker_killed_in_the_middle_does_not_change_the_result(
    client: Client, name: str
) -> None:
    client.wait_for_workers(2, timeout=30)
    preset = presets.get(name)
    undisturbed = execution.execute(client, preset, SMALL[name]).result
    killer = _Killer(client)
    disturbed = execution.execute(client, preset, SMALL[name], report=killer).result
    assert killer.killed.is_set()
    if name in SAME:
        assert disturbed[SAME[name]] == (
            pytest.approx(undisturbed[SAME[name]], rel=1e-12)
            if name == "svd"
            else undisturbed[SAME[name]]
        )


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_a_worker_that_ends_while_it_is_asked_is_left_out_and_nobody_waits_for_it(
    client: Client,
) -> None:
    client.wait_for_workers(2, timeout=30)
    stopped = list(client.run(os.getpid).values())[1]
    killer = _Killer(client, while_asked=True)
    os.kill(stopped, signal.SIGSTOP)  # it cannot answer before it is killed
    result = execution.execute(client, presets.get("smoke"), {}, report=killer)
    assert killer.killed.is_set()
    assert len(result.result["workers"]) == 1
    assert result.result["all_right"]


class _Killer:
    """Kills the second worker with SIGKILL when it is asked, or as soon as the preset computes."""

    def __init__(self, client: Client, *, while_asked: bool = False) -> None:
        self.pid = list(client.run(os.getpid).values())[1]
        self.while_asked = while_asked
        self.killed = threading.Event()

    def __call__(self, progress: execution.RunProgress) -> None:
        asked = progress.stage == "asking workers"
        if asked == self.while_asked and not self.killed.is_set():
            os.kill(self.pid, signal.SIGKILL)
            self.killed.set()
