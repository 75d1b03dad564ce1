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
