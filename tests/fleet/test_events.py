"""Whatever happens to a fleet, and in whatever order: it ends as people want it."""

import asyncio
from collections.abc import Callable
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from gputui.fleet import desired
from tests.fleet.simulated import SimulatedFleet

HOSTS = ("h0", "h1", "h2")
GPUS = 2
LEASE_S = 0.05
EXAMPLES = 20


def cut(one: SimulatedFleet, host: str) -> None:
    """Break the connection to a host, which can be made again."""
    one.agent(host).cut()


def die(one: SimulatedFleet, host: str) -> None:
    one.agent(host).end()


def part(one: SimulatedFleet, host: str) -> None:
    """Put a host out of reach until the end, longer than its lease or not."""
    one.agent(host).reachable = False
    one.agent(host).cut()


def close(one: SimulatedFleet, host: str) -> None:
    """Put a host out of reach and end its workers; its agent has them come back."""
    part(one, host)
    one.agent(host).close_workers()


def crash(one: SimulatedFleet, host: str) -> None:
    """End a worker, which its agent starts again."""
    agent = one.agent(host)
    for name in list(agent.workers)[:1]:
        agent.crash(name, "it fell")


def scale(one: SimulatedFleet, workers: int) -> None:
    one.fleet.set_desired(desired.scale(one.fleet.desired, workers))


def wait(one: SimulatedFleet, seconds: float) -> None:
    """Let time go by."""


Event = tuple[Callable[[SimulatedFleet, Any], None], Any]
hosts = st.sampled_from(HOSTS)
events = st.one_of(
    st.tuples(st.sampled_from([cut, die, part, close, crash]), hosts),
    st.tuples(st.just(scale), st.integers(0, 8)),
    st.tuples(st.just(wait), st.sampled_from([0.0, 0.02, 2 * LEASE_S])),
)


async def live(happening: list[Event]) -> tuple[SimulatedFleet, dict[str, int]]:
    """Let events happen to a fleet that is up, then mend all; return it and the pids before."""
    one = SimulatedFleet(len(HOSTS), GPUS, lease_s=LEASE_S, ping_interval_s=0.01)
    await one.up(len(HOSTS) * GPUS)
    before = pids(one)
    for event, about in happening:
        event(one, about)
        await asyncio.sleep(about if event is wait else 0)
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
@example([(scale, 4), (close, "h2"), (wait, 2 * LEASE_S)])
@example([(scale, 4), (cut, "h0"), (scale, 2)])
def test_events_in_any_order_end_in_what_is_wanted(happening: list[Event]) -> None:
    async def run() -> None:
        one, _ = await live(happening)
        assert set(one.fleet.worker_table.up) == set(pids(one))
        await one.fleet.stop(0.1)

    asyncio.run(run())


@settings(max_examples=EXAMPLES // 2, deadline=None)
@given(st.lists(st.tuples(st.just(cut), hosts), max_size=6), st.integers(6, 9))
def test_no_worker_is_lost_by_cuts_and_by_wanting_more(cuts: list[Event], more: int) -> None:
    async def run() -> None:
        one, before = await live([*cuts, (scale, more)])
        assert pids(one) == before
        await one.fleet.stop(0.1)

    asyncio.run(run())
