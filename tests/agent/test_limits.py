"""A host whose user may start hardly any process."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from gputui.protocol.agent import AgentEnding
from tests.agent.driving import Driver

OTHER = 54321
"""A user without any process: the limit counts all of a user's."""


@pytest.fixture
def limited(tmp_path: Path) -> Iterator[Driver]:
    """An agent of a user of its own."""
    if os.geteuid() != 0:
        pytest.skip("only root can be another user")
    driver = Driver(tmp_path)
    with tempfile.TemporaryDirectory(prefix="gt-") as folder:
        os.chown(folder, OTHER, OTHER)
        driver.env |= {"TMPDIR": folder, "HOME": folder}
        yield driver


def may_start(processes: int) -> tuple[str, ...]:
    """Return a command that starts another as that user, who may still read this one's files."""
    readable = ("--inh-caps=+dac_override", "--ambient-caps=+dac_override")
    user = ("setpriv", f"--reuid={OTHER}", "--clear-groups", *readable)
    return (*user, "prlimit", f"--nproc={processes}")


async def connect_in_vain(driver: Driver) -> None:
    with pytest.raises(AssertionError, match="the stream ended"):
        await driver.connect()
    await driver.shut_down()


def left(driver: Driver) -> list[str]:
    return [str(path) for path in Path(driver.env["TMPDIR"]).glob("gputui-*/*")]


async def test_an_agent_that_cannot_be_forked_leaves_nothing(limited: Driver) -> None:
    limited.before = may_start(1)
    await connect_in_vain(limited)
    assert left(limited) == []


async def test_an_agent_that_can_start_no_thread_ends_and_says_so(limited: Driver) -> None:
    limited.before = may_start(2)
    await connect_in_vain(limited)
    (ending,) = (each for each in limited.seen if isinstance(each, AgentEnding))
    assert "this user may run no more processes and threads there" in ending.reason
    assert left(limited) == []
