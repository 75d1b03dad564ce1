"""Fixtures of a host: a fake NVML, a watch that is always stopped, an agent and a scheduler."""

import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import distributed
import pytest

from gputui.agent.gpu.watch import DeviceWatch
from gputui.engine.tls import security
from gputui.head.scheduler_process import make_certificate
from gputui.protocol.shared import Credentials
from tests.agent.driving import Driver, Scheduler, start_worker
from tests.processes import processes_of

FAKES = Path(__file__).parent.parent / "fakes"


class FakeNvml:
    """The GPUs that tests/fakes/pynvml.py shows; `set` may be called at any time."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def set(self, **machine: Any) -> None:
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


@dataclass
class Near:
    """A folder like /sys/bus/pci/devices."""

    folder: Path

    def __call__(self, gpu: int, *cpus: int) -> None:
        """Have CPUs be near a GPU, in the kernel's words."""
        mask = sum(1 << cpu for cpu in cpus)
        device = self.folder / f"7fff:{gpu:02x}:00.0"
        device.mkdir(parents=True)
        groups = (mask >> shift & (2**32 - 1) for shift in (96, 64, 32, 0))
        (device / "local_cpus").write_text(",".join(f"{group:08x}" for group in groups) + "\n")


@pytest.fixture
def near(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Near:
    """A function that has CPUs be near a GPU."""
    monkeypatch.setattr("gputui.agent.gpu.nvml.PCI", tmp_path / "pci")
    return Near(tmp_path / "pci")


@pytest.fixture
def watching() -> Iterator[Callable[..., DeviceWatch]]:
    """A function that starts a `DeviceWatch` with a short interval and waits for its readings."""
    started = []

    def watch(*, environ: dict[str, str] | None = None, **settings: Any) -> DeviceWatch:
        settings = {"interval_s": 0.02, "stale_after_s": 0.1} | settings
        one = DeviceWatch("test", environ=environ or {}, **settings)
        started.append(one)
        one.start()
        one.wait(20)
        return one

    yield watch
    for one in started:
        one.stopped.set()


@pytest.fixture
async def scheduler() -> AsyncIterator[tuple[distributed.Scheduler, Credentials]]:
    """A scheduler over TLS, and what a worker needs to join it."""
    made = make_certificate()
    certificate, key = made.certificate_pem, made.key_pem
    own = security(certificate, key)
    async with Scheduler(host="127.0.0.1", port=0, protocol="tls", security=own) as one:
        yield one, Credentials(certificate, key, json.dumps({}))


@pytest.fixture
async def driver(tmp_path: Path) -> AsyncIterator[Driver]:
    """An agent's head; its agent ends with the test, and leaves nothing."""
    one = Driver(tmp_path)
    yield one
    try:
        if hasattr(one, "relay"):
            await one.shut_down()
    finally:
        for pid in processes_of(one.cluster_id):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@pytest.fixture
async def up(driver: Driver, scheduler: tuple[distributed.Scheduler, Credentials]) -> Driver:
    """A head whose agent runs one worker."""
    await driver.connect()
    await start_worker(driver, scheduler)
    return driver
