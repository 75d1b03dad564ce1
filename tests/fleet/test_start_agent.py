"""What the hosts of one fleet share."""

from pathlib import Path

import pytest

from gputui.fleet.deploy import start_agent
from gputui.fleet.deploy.remote import Pack
from gputui.fleet.stages import FleetSettings


async def test_a_pack_that_could_not_be_made_is_made_by_the_next_attempt() -> None:
    outcomes = [OSError("disk full"), Pack(b"", Path())]

    def make() -> Pack:
        outcome = outcomes.pop(0)
        if isinstance(outcome, OSError):
            raise outcome
        return outcome

    shared = start_agent.AgentOpener(FleetSettings("test"), make)
    with pytest.raises(OSError, match="disk full"):
        await shared.pack()
    assert (await shared.pack()).data == b""


async def test_an_import_of_asyncssh_that_failed_is_tried_again_and_does_not_stop_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shared = start_agent.AgentOpener(FleetSettings("test"))
    with monkeypatch.context() as patch:
        patch.setitem(__import__("sys").modules, "gputui.fleet.ssh.connector", None)
        with pytest.raises(ImportError):
            await shared.connector()
        await shared.close()
    assert await shared.connector()
    await shared.close()
