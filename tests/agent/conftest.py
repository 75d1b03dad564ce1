"""Fixtures for what reads a host: a fake NVML, and a watch that is always stopped."""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gputui.agent.watch import DeviceWatch

FAKES = Path(__file__).parent.parent / "fakes"


class FakeNvml:
    """The GPUs that tests/fakes/pynvml.py shows; `set` may be called at any time."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def set(self, **machine: Any) -> None:
        """Take these as the machine's GPUs from now on."""
        draft = self.path.with_suffix(".new")
        draft.write_text(json.dumps(machine))
        draft.replace(self.path)


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeNvml:
    """A fake NVML in this process and its children, with two GPUs unless set otherwise."""
    monkeypatch.syspath_prepend(FAKES)
    monkeypatch.setenv("PYTHONPATH", str(FAKES))
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    fake = FakeNvml(tmp_path / "nvml.json")
    monkeypatch.setenv("GPUTUI_FAKE_NVML", str(fake.path))
    fake.set(gpus=2)
    return fake


@pytest.fixture
def watching() -> Iterator[Callable[..., DeviceWatch]]:
    """A function that starts a `DeviceWatch` with a short interval and waits for its readings."""
    started = []

    def watch(*, environ: dict[str, str] | None = None, **settings: Any) -> DeviceWatch:
        settings = {"interval_s": 0.02, "stale_after_s": 0.1} | settings
        one = DeviceWatch("test", environ=environ or {}, **settings)
        started.append(one)
        one.start()
        one.wait(5)
        return one

    yield watch
    for one in started:
        one.stop(0.1)
