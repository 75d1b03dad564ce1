"""Whatever fails inside a head is answered, recorded, or ends the cluster with its reason."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gputui.client.head_connection import HeadConnection
from gputui.errors import HeadError
from gputui.head.head import Head
from gputui.head.requests import head_of
from gputui.head.scheduler_process import make_certificate
from gputui.process.background import Background
from gputui.protocol.frontend import Scale
from gputui.protocol.scheduler import ConfigureScheduler
from gputui.protocol.starter import ConfigureHead
from gputui.protocol.typed_codec import encode
from tests.clusters import until

BOUND_S = 30
WATCHED = """
import asyncio, sys
from concurrent.futures import ThreadPoolExecutor
from gputui.fleet.ssh import connector
from gputui.head.scheduler_process import make_certificate

class Watch:
    def find_spec(self, name, path=None, target=None):
        locked = connector.IMPORTING.locked()
        if name.split(".")[0] in ("cryptography", "asyncssh") and not locked:
            print(name)

sys.meta_path.insert(0, Watch())
with ThreadPoolExecutor(1) as alone:  # in turn: any import without the lock is seen
    alone.submit(make_certificate).result()
asyncio.run(connector.Connector()._import())
assert "asyncssh" in sys.modules
"""


@pytest.fixture
async def head(runtime: Path) -> AsyncIterator[Head]:
    """A head in this process, with one worker to come."""
    head = head_of(ConfigureHead("test", "localhost gpus=none workers=1", stays=True))
    opened = asyncio.Event()
    running = asyncio.create_task(head.run(lambda socket: opened.set()))
    await opened.wait()
    yield head
    head.stop("the test is over")
    await running


def texts(head: Head) -> list[str]:
    return [event.text for event in head.event_log.events]


async def test_a_request_whose_handler_fails_is_answered(head: Head) -> None:
    head.fleet.set_desired = None  # type: ignore[assignment]
    link = await HeadConnection.open(head.server.path, frontend="screen")
    with pytest.raises(HeadError, match="Scale failed: TypeError"):
        await link.request(Scale(7, 1))
    await link.close()


async def test_snapshots_that_cannot_be_taken_are_recorded_once_and_tried_again(
    head: Head, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = []

    def show() -> None:
        failures.append(1)
        raise KeyError("h:gpu0")

    with monkeypatch.context() as patch:
        patch.setattr(head.view, "show", show)
        head.view.changed.set()
        await until(lambda: len(failures) > 1)
    assert texts(head).count("snapshots: KeyError: 'h:gpu0'; tried again every 1 s") == 1
    taken: list[None] = []
    monkeypatch.setattr(head.view, "show", lambda: taken.append(None))
    await until(lambda: taken)


@pytest.mark.slow
async def test_a_scheduler_that_cannot_be_started_again_ends_the_cluster_with_the_reason(
    head: Head, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def start() -> None:
        raise OSError(24, "Too many open files")

    await until(lambda: head.scheduler.address)
    monkeypatch.setattr(head.scheduler, "start", start)
    assert head.scheduler._child is not None
    await head.scheduler._child.end(0.0)
    await until(lambda: head.end_reason)
    assert "the start of another scheduler failed" in head.end_reason
    assert "Too many open files" in head.end_reason


async def test_the_owner_of_a_task_hears_of_its_error_and_not_of_its_cancellation() -> None:
    failed: list[tuple[str, Exception]] = []
    tasks = Background(lambda name, error: failed.append((name, error)))

    async def fail() -> None:
        raise ValueError("wrong")

    tasks.start(fail(), "a task")
    tasks.start(asyncio.sleep(60), "another")
    await until(lambda: failed)
    await tasks.close()
    assert [(name, str(error)) for name, error in failed] == [("a task", "wrong")]


def test_a_scheduler_whose_orders_cannot_be_read_ends_with_an_error_and_not_as_if_closed(
    runtime: Path,
) -> None:
    made = make_certificate()
    config = ConfigureScheduler("127.0.0.1", 0, made, 1.0, str(runtime / "scratch"))
    command = [sys.executable, "-m", "gputui.head.scheduler"]
    orders = encode(config) + b"no message\n"
    done = subprocess.run(command, input=orders, capture_output=True, timeout=BOUND_S)
    assert done.returncode == 1
    assert b"ProtocolError: not a message of this version: no message" in done.stderr


def test_whatever_threads_of_the_head_import_they_import_one_at_a_time() -> None:
    done = subprocess.run([sys.executable, "-c", WATCHED], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


async def test_a_head_whose_fleet_cannot_be_ended_leaves_no_socket_and_no_name(
    runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = Head(ConfigureHead("test", "localhost gpus=none workers=1"))
    stop = head.fleet.stop

    async def broken() -> tuple[str, ...]:
        await stop()
        raise RuntimeError("out of order")

    monkeypatch.setattr(head.fleet, "stop", broken)
    with pytest.raises(RuntimeError, match="out of order"):
        await head.run(lambda socket: head.stop("enough"))
    assert not list(runtime.rglob("*.sock")) + list(runtime.rglob("*.json"))
