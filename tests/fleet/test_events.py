"""Whatever happens to a fleet, and in whatever order: it ends as people want it."""

import asyncio
from dataclasses import dataclass

from hypothesis import example, given, settings
from hypothesis import strategies as st

from gputui.fleet import desired
from tests.fleet.simulated import SimulatedFleet

HOSTS = ("h0", "h1", "h2")
GPUS = 2
LEASE_S = 0.05
EXAMPLES = 20


@dataclass(frozen=True)
class Cut:
    """The connection to a host breaks, and can be made again."""

    host: str

    def happen(self, one: SimulatedFleet) -> None:
        one.agent(self.host).cut()


@dataclass(frozen=True)
class Die:
    """An agent dies with its workers."""

    host: str

    def happen(self, one: SimulatedFleet) -> None:
        one.agent(self.host).end()


@dataclass(frozen=True)
class Part:
    """A host is out of reach until the end, longer than its lease or not."""

    host: str

    def happen(self, one: SimulatedFleet) -> None:
        one.agent(self.host).reachable = False
        one.agent(self.host).cut()


@dataclass(frozen=True)
class Close:
    """A host is out of reach until the end, and its workers end; its agent has them come back."""

    host: str

    def happen(self, one: SimulatedFleet) -> None:
        Part(self.host).happen(one)
        one.agent(self.host).close_workers()


@dataclass(frozen=True)
class Crash:
    """A worker ends, and its agent starts it again."""

    host: str

    def happen(self, one: SimulatedFleet) -> None:
        agent = one.agent(self.host)
        for name in list(agent.workers)[:1]:
            agent.crash(name, "it fell")


@dataclass(frozen=True)
class Scale:
    """People want another number."""

    workers: int

    def happen(self, one: SimulatedFleet) -> None:
        one.fleet.set_desired(desired.scale(one.fleet.desired, self.workers))


@dataclass(frozen=True)
class Wait:
    """Time goes by."""

    seconds: float

    def happen(self, one: SimulatedFleet) -> None:
        return


Event = Cut | Die | Part | Close | Crash | Scale | Wait
hosts = st.sampled_from(HOSTS)
events = st.one_of(
    hosts.map(Cut),
    hosts.map(Die),
    hosts.map(Part),
    hosts.map(Close),
    hosts.map(Crash),
    st.integers(0, 8).map(Scale),
    st.sampled_from([0.0, 0.02, 2 * LEASE_S]).map(Wait),
)


async def live(happening: list[Event]) -> tuple[SimulatedFleet, dict[str, int]]:
    """Let events happen to a fleet that is up, then mend all; return it and the pids before."""
    one = SimulatedFleet(len(HOSTS), GPUS, lease_s=LEASE_S, ping_interval_s=0.01)
    await one.up(len(HOSTS) * GPUS)
    before = pids(one)
    for event in happening:
        event.happen(one)
        await asyncio.sleep(event.seconds if isinstance(event, Wait) else 0)
    for host in HOSTS:
        one.agent(host).reachable = True
    one.fleet.retry(HOSTS)
    wanted = one.fleet.desired.workers
    number = len(HOSTS) * GPUS if wanted is None else min(wanted, len(HOSTS) * GPUS)
    await one.until(
        lambda: one.fleet.settled and len(one.fleet.worker_table.up) == number == len(pids(one))
    )
    return one, before


def pids(one: SimulatedFleet) -> dict[str, int]:
    """Return what truly runs."""
    found = [worker for host in HOSTS for worker in one.agent(host).workers.values()]
    assert len({worker.name for worker in found}) == len(found), "two workers of one name"
    return {worker.name: worker.pid for worker in found}


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.lists(events, max_size=8))
@example([Scale(4), Close("h2"), Wait(2 * LEASE_S)])
@example([Scale(4), Cut("h0"), Scale(2)])
def test_events_in_any_order_end_in_what_is_wanted(happening: list[Event]) -> None:
    async def run() -> None:
        one, _ = await live(happening)
        assert set(one.fleet.worker_table.up) == set(pids(one))
        await one.fleet.stop(0.1)

    asyncio.run(run())


@settings(max_examples=EXAMPLES // 2, deadline=None)
@given(st.lists(hosts.map(Cut), max_size=6), st.integers(6, 9))
def test_no_worker_is_lost_by_cuts_and_by_wanting_more(cuts: list[Event], more: int) -> None:
    async def run() -> None:
        one, before = await live([*cuts, Scale(more)])
        assert pids(one) == before
        await one.fleet.stop(0.1)

    asyncio.run(run())
