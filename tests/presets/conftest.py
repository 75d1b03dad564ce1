"""A real local cluster of two single-threaded worker processes, shared by the preset tests."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from distributed import Client, LocalCluster

from gputui import presets
from gputui.runs import execution


@pytest.fixture(scope="package")
def client() -> Iterator[Client]:
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=":0", memory_limit="2GiB"
        ) as cluster,
        Client(cluster) as connected,
    ):
        yield connected


@pytest.fixture
def execute(client: Client) -> Callable[..., execution.RunResult]:
    """Run a preset by name with parameters as they are typed, on the CPU."""

    def _execute(name: str, keep_arrays: bool = False, **texts: Any) -> execution.RunResult:
        preset = presets.get(name)
        given = {key: str(value) for key, value in texts.items()}
        client.wait_for_workers(2, timeout=60)
        return execution.execute(client, preset, given, backend="numpy", keep_arrays=keep_arrays)

    return _execute
