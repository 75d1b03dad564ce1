"""Child processes: bounded in every way, and always with a reason."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys

import pytest

from gputui.process.child import Child
from gputui.process.handle import Handle
from tests.processes import ended, lives

BOUND_S = 10.0
PIPES = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}


def shell(script: str, **settings: object) -> Child:
    return Child(["sh", "-c", script], **settings)  # type: ignore[arg-type]


async def within(bound_s: float, work: object) -> object:
    async with asyncio.timeout(bound_s):
        return await work  # type: ignore[misc]


async def test_it_says_how_it_ended_and_what_it_said_last() -> None:
    heard: list[str] = []
    child = shell("echo one >&2; printf two >&2; exit 3", said=heard.append)
    assert child.reason == ""
    assert await within(BOUND_S, child.wait()) == 3
    assert child.last_log_lines == ("one", "two") == tuple(heard)
    assert child.reason == "ended with exit status 3: two"


async def test_a_signal_is_named() -> None:
    child = shell("kill -SEGV $$")
    assert await within(BOUND_S, child.wait()) == -signal.SIGSEGV
    assert child.reason == "was killed by SIGSEGV"


@pytest.mark.parametrize(
    ("trap", "grace_s", "status"), [("exit 7", BOUND_S, 7), ("", 0.05, -signal.SIGKILL)]
)
async def test_one_that_does_not_end_when_asked_is_killed(
    trap: str, grace_s: float, status: int
) -> None:
    child = shell(f"trap '{trap}' TERM; echo up; while :; do sleep 0.01; done", **PIPES)
    stream = await child.stream()
    assert await stream.read() == b"up\n"
    assert await within(BOUND_S, child.end(grace_s)) == status
    await stream.close()


async def test_unread_output_holds_up_no_end() -> None:
    child = Child([sys.executable, "-c", "while True: print('x' * 9999)"], **PIPES)  # type: ignore[arg-type]
    stream = await child.stream()
    assert await stream.read()
    child.send_signal(signal.SIGKILL)
    assert await within(BOUND_S, child.wait()) == -signal.SIGKILL
    await stream.close()


async def test_a_grandchild_that_keeps_the_pipes_open_holds_up_no_end() -> None:
    child = shell("sleep 600 & echo $!; exec 1>&-; exit 5", **PIPES)
    stream = await child.stream()
    sleeper = int(await stream.read())
    assert await within(BOUND_S, child.wait()) == 5
    assert lives(sleeper)
    os.kill(sleeper, signal.SIGKILL)
    await stream.close()


@pytest.mark.parametrize("then", ["wait", "exit 0"])
async def test_nothing_is_left_of_a_group_that_is_ended_or_whose_leader_ends(then: str) -> None:
    child = shell(f"sleep 600 & echo $!; {then}", own_session=True, **PIPES)
    stream = await child.stream()
    sleeper = int(await stream.read())
    await within(BOUND_S, child.end(BOUND_S) if then == "wait" else child.wait())
    await ended(sleeper)
    await stream.close()


async def test_a_kernel_without_pidfds_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(pid: int) -> int:
        raise OSError("Function not implemented")

    monkeypatch.setattr(os, "pidfd_open", missing)
    child = shell("exit 4")
    assert await within(BOUND_S, child.wait()) == 4


async def test_what_cannot_be_started_is_an_error_here() -> None:
    with pytest.raises(FileNotFoundError):
        Child(["/nonexistent"])


async def test_an_end_after_the_end_signals_nobody() -> None:
    child = shell("exit 0")
    await within(BOUND_S, child.wait())
    child.send_signal(signal.SIGKILL)
    assert await within(BOUND_S, child.end(0.0)) == 0
    with contextlib.suppress(ProcessLookupError):
        os.kill(child.pid, 0)


async def test_a_long_line_is_kept_by_its_end() -> None:
    child = Child([sys.executable, "-c", "import sys; sys.stderr.write('x' * 300_000 + 'end')"])
    await within(BOUND_S, child.wait())
    (line,) = child.last_log_lines
    assert line.endswith("xend")
    assert len(line) <= 4000


def test_a_process_that_ended_is_not_taken_for_a_later_one_of_its_pid(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    process = subprocess.Popen(["sleep", "600"], start_new_session=True)
    handle = Handle.of(process.pid)
    assert handle.lives
    handle.send_signal(signal.SIGTERM)
    assert process.wait(BOUND_S) == -signal.SIGTERM
    assert not handle.lives

    def other(pid: int, number: int) -> None:
        raise AssertionError("a signal to a process of that pid")

    for name in ("kill", "killpg"):
        monkeypatch.setattr(os, name, other)
    handle.send_signal(signal.SIGTERM)
    handle.kill_group()
