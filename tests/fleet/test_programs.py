"""Programs of a fleet on simulated agents: what is lost with a connection, and agents that lie."""

from collections.abc import AsyncIterator

import pytest

from gputui.errors import HeadError
from gputui.fleet.desired import Desired
from gputui.model.hosts import parse_hosts
from gputui.model.readings import Wanted
from gputui.model.snapshot import HostState
from gputui.protocol.agent import Ping, ReleaseGpus
from gputui.protocol.programs import (
    PIECE_BYTES,
    WINDOW_BYTES,
    BytesTaken,
    EndPrograms,
    FromProgram,
    Launch,
    Per,
    ProgramExited,
    ProgramInput,
    ProgramOutput,
    ProgramStarted,
    ProgramWaits,
    RunPrograms,
    StartProgram,
    packed,
)
from gputui.runs.program_run import Input
from tests.fleet.simulated import SimulatedFleet

PIECE = packed(b"x" * PIECE_BYTES)


def output(start: int, data: str = PIECE) -> ProgramOutput:
    return ProgramOutput("run/0", start, data, False)


class Run(SimulatedFleet):
    """A run of one process on each of two hosts, and what its frontend hears."""

    def __init__(self) -> None:
        super().__init__(0, gpus=0)
        self.fleet.add_hosts(parse_hosts("h0 gpus=none workers=1\nh1 gpus=none workers=1"))
        self.heard: list[FromProgram | ProgramWaits] = []

    async def start(self) -> None:
        """Start it on hosts that are ready."""
        await self.until(lambda: set(self.states().values()) == {HostState.READY})
        order = RunPrograms(1, "run", Launch(("train",), "/"), Wanted(2), Per.GPU)
        await self.fleet.programs.start(order, self.heard.append)

    def states(self) -> dict[str, HostState]:
        return {each.name: each.state for each in self.fleet.host_statuses}

    def orders(self, kind: type, host: str = "h0") -> list[object]:
        return [each for each in self.agent(host).taken if isinstance(each, kind)]

    def say(self, *messages: FromProgram) -> None:
        for message in messages:
            self.agent("h0").say(message)

    async def seen(self, message: FromProgram) -> list[object]:
        """Wait until the frontend has heard this; return all that it has."""
        await self.until(lambda: message in self.heard)
        return [each for each in self.heard if not isinstance(each, ProgramWaits)]

    async def cut(self) -> None:
        """Cut the connection to a host, which comes back."""
        self.agent("h0").cut()
        await self.until(lambda: self.states()["h0"] is not HostState.READY)
        await self.until(lambda: self.states()["h0"] is HostState.READY)


@pytest.fixture
async def run() -> AsyncIterator[Run]:
    run = Run()
    await run.start()
    await run.until(lambda: run.orders(StartProgram))
    yield run
    await run.fleet.stop(0.1)


@pytest.mark.parametrize(
    "lie",
    [
        [output(2**52)],
        [output(0, "")],
        [output(0, "no base64")],
        [output(start) for start in range(0, WINDOW_BYTES * 2, PIECE_BYTES)],
    ],
    ids=["a gap", "nothing", "no base64", "more than was taken"],
)
async def test_output_that_cannot_be_fails_its_host_and_the_run(
    run: Run, lie: list[ProgramOutput]
) -> None:
    run.say(*lie)
    await run.until(lambda: run.states()["h0"] is HostState.FAILED)
    (reason,) = [each.reason for each in run.fleet.host_statuses if each.reason]
    assert "sends output of run/0 that it cannot have" in reason
    assert run.states()["h1"] is HostState.READY
    await run.until(lambda: any(isinstance(each, ProgramExited) for each in run.heard))
    passed_on = [each for each in run.heard if isinstance(each, ProgramOutput)]
    assert len(passed_on) <= WINDOW_BYTES // PIECE_BYTES + 1


async def test_a_program_of_another_host_is_not_spoken_for(run: Run) -> None:
    run.say(ProgramExited("run/1", 0, "so it says"), BytesTaken("run/0", 1))
    assert await run.seen(BytesTaken("run/0", 1)) == [BytesTaken("run/0", 1)]


async def test_output_that_comes_again_after_a_cut_is_passed_on_once(run: Run) -> None:
    run.say(output(0))
    await run.seen(output(0))
    run.agent("h0").cut()
    await run.until(lambda: run.states()["h0"] is not HostState.READY)
    run.fleet.programs.said(BytesTaken("run/0", PIECE_BYTES))
    assert not run.orders(BytesTaken)
    await run.until(lambda: run.states()["h0"] is HostState.READY)
    run.say(output(0), output(PIECE_BYTES))
    assert await run.seen(output(PIECE_BYTES)) == [output(0), output(PIECE_BYTES)]
    await run.until(lambda: BytesTaken("run/0", PIECE_BYTES) in run.orders(BytesTaken))


async def test_a_start_is_told_once_a_connection(run: Run) -> None:
    started = ProgramStarted("run/0", 7)
    run.say(started, started, started, BytesTaken("run/0", 0))
    assert await run.seen(BytesTaken("run/0", 0)) == [started, BytesTaken("run/0", 0)]
    await run.cut()
    await run.until(lambda: run.heard.count(started) == 2)


async def test_a_start_that_a_cut_lost_is_sent_again(run: Run) -> None:
    await run.cut()
    await run.until(lambda: len(run.orders(StartProgram)) == 2)


async def test_a_host_whose_agent_was_replaced_has_lost_its_programs(run: Run) -> None:
    run.agent("h0").pid += 1
    await run.cut()
    lost = ProgramExited("run/0", -9, "h0 was lost: its agent ended")
    await run.seen(lost)
    await run.until(lambda: run.orders(EndPrograms, "h1"))


async def test_a_host_that_is_removed_while_it_is_away_ends_its_programs(run: Run) -> None:
    run.agent("h0").reachable = False
    run.agent("h0").cut()
    await run.until(lambda: run.states()["h0"] is not HostState.READY)
    run.fleet.remove_hosts(["h0"])
    await run.seen(ProgramExited("run/0", -9, "h0 was lost: it was removed"))


async def test_a_host_forgets_programs_that_are_over_or_of_no_run(run: Run) -> None:
    run.say(ProgramExited("run/0", 0, "ended"), output(0), ProgramStarted("other/0", 7))
    await run.until(lambda: len(run.orders(EndPrograms)) == 3)
    names = [order.programs for order in run.orders(EndPrograms)]
    assert names == [("run/0",), ("run/0",), ("other/0",)]


async def test_gpus_are_held_until_what_was_started_on_them_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = SimulatedFleet(2, gpus=1)
    one.fleet.desired = Desired(0)
    hosts = one.fleet._hosts
    await one.until(lambda: all(each.state is HostState.READY for each in hosts.values()))
    monkeypatch.setattr(hosts["h1"], "send", lambda message: False)
    order = RunPrograms(1, "run", Launch(("train",), "/"), Wanted(2), Per.GPU)
    taken = one.agent("h0").taken
    try:
        with pytest.raises(HeadError, match="h1 was lost as it was to start"):
            await one.fleet.programs.start(order, lambda message: None)
        hosts["h0"].send(Ping(99))  # which comes after all that was sent so far
        await one.until(lambda: Ping(99) in taken)
        kinds = [type(each) for each in taken]
        assert EndPrograms in kinds and ReleaseGpus not in kinds
        one.agent("h0").say(ProgramExited("run/0", -9, ""))
        await one.until(lambda: ReleaseGpus(0, ("GPU-h0-0",)) in taken)
    finally:
        await one.fleet.stop(0.1)


def test_input_goes_on_where_it_ended_whatever_a_host_says_it_has_taken() -> None:
    sent: list[ProgramInput] = []
    given = Input(sent.append, "run/0")
    given._sent(b"abc")
    given.taken(2**53)
    given._sent(b"def")
    assert [each.start for each in sent] == [0, 3]


def test_input_that_was_not_taken_is_sent_again_and_its_end_always() -> None:
    sent: list[ProgramInput] = []
    given = Input(sent.append, "run/0")
    given._sent(b"abc")
    given.taken(2)
    given.again()
    given.taken(3)
    given.again()
    given._sent(b"")
    given.taken(3)
    given.again()
    assert [each.start for each in sent] == [0, 0, 3, 3]
