"""Clusters of this machine's own workers, in folders of the test's own."""

import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.clusters import Clusters


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="gt-") as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        monkeypatch.setenv("XDG_STATE_HOME", folder)
        yield Path(folder)


@pytest.fixture
async def clusters(runtime: Path) -> AsyncIterator[Clusters]:
    clusters = Clusters()
    yield clusters
    await clusters.close()
