"""Claims over several hosts, by heads that wait for them at the same time."""

import asyncio
import contextlib
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gputui.agent.held_claims import HeldClaims
from gputui.errors import ClusterError
from gputui.fleet.claiming import HostClaims, hold
from gputui.model.hosts import Host
from gputui.model.readings import DeviceReading, Note, Wanted, waiting_for
from gputui.protocol.agent import Claimed, Configure


def training() -> Note:
    return Note("training")


class Box:
    """A host with GPUs and a folder of claims; each head that reaches it has an agent there."""

    def __init__(self, name: str, folder: Path, gpus: int) -> None:
        folder.mkdir()
        folder.chmod(0o1777)
        self.name, self.folder = name, folder
        self.uuids = [f"GPU-{name}-{number}" for number in range(gpus)]
        self.labels = [str(number) for number in range(gpus)]
        self.memory_bytes = 2**37
        self.used_bytes = dict.fromkeys(self.uuids, 0)
        self.is_late = False
        """Whether agents carry out what they are asked, and answer too late."""
        self._agents: dict[HostClaims, HeldClaims] = {}
        self._pids = 0
        self.arriving_s = self.answering_s = 0.0

    def agent(self, host: Host) -> tuple[HostClaims, Callable[[], None]]:
        async def ask(order: Any, bound_s: float) -> Claimed | None:
            await asyncio.sleep(self.arriving_s)
            claimed = carry_out(order)
            await asyncio.sleep(self.answering_s)
            return None if self.is_late else claimed

        def carry_out(order: Any) -> Claimed:
            return self._agents[claims].carry_out(order)

        claims = HostClaims(host, carry_out, ask)
        self.replace_agent(claims)

        def read() -> None:
            mine = self._agents[claims].claims
            seen, tickets = (mine.seen(self.uuids), mine.tickets()) if mine else ({}, ())
            before = [each for each in tickets if mine and each.name < mine.ticket]
            claims.devices = tuple(
                DeviceReading(
                    uuid,
                    label,
                    "H100",
                    self.memory_bytes,
                    self.used_bytes[uuid],
                    claim=seen.get(uuid),
                    waiting=waiting_for(uuid, tickets),
                    ahead=len(waiting_for(uuid, before)),
                )
                for label, uuid in zip(self.labels, self.uuids, strict=True)
            )

        read()
        return claims, read

    def replace_agent(self, claims: HostClaims) -> None:
        """End a head's agent, if it has one, and begin another."""
        if before := self._agents.get(claims):
            before.claims.leave_line()
            before.claims.release()
        configure = Configure("id", self.name, 10.0, 1.0, ())
        environ = {"GPUTUI_CLAIMS": str(self.folder)}
        self._agents[claims] = HeldClaims(environ, configure, {}, print)
        self._pids += 1
        claims.met(self._pids)


@pytest.fixture
def boxes(tmp_path: Path) -> Iterator[list[Box]]:
    yield [Box(name, tmp_path / name, 2) for name in ("a", "b")]


async def test_a_claim_that_is_granted_too_late_is_released(boxes: list[Box]) -> None:
    boxes[1].is_late = True
    (first, _), (second, read) = (box.agent(Host(box.name)) for box in boxes)
    with pytest.raises(ClusterError, match="b: its agent does not answer"):
        await hold([first, second], Wanted(4), training)
    read()
    assert not any(device.claim for device in second.devices)


async def test_who_gives_up_while_an_agent_answers_holds_nothing(boxes: list[Box]) -> None:
    boxes[1].answering_s = 60.0
    (first, read_first), (second, read) = (box.agent(Host(box.name)) for box in boxes)
    claiming = asyncio.create_task(hold([first, second], Wanted(4), training))
    async with asyncio.timeout(10.0):
        while not any(device.claim for device in second.devices):
            await asyncio.sleep(0.01)
            read()
    claiming.cancel()
    with pytest.raises(asyncio.CancelledError):
        await claiming
    read_first()
    read()
    assert not any(device.claim for device in (*first.devices, *second.devices))


async def test_who_is_refused_releases_nothing_that_another_run_of_the_cluster_has(
    boxes: list[Box],
) -> None:
    boxes[0].answering_s = 0.1
    (first, _), (second, read) = (box.agent(Host(box.name)) for box in boxes)
    all_four = asyncio.create_task(hold([first, second], Wanted(4), training))
    await asyncio.sleep(0)
    (held,) = await hold([first, second], Wanted(2), training)
    with pytest.raises(ClusterError, match="too few free GPUs: 4 asked for, 2 free"):
        await all_four
    read()
    assert held.uuids == {each.uuid for each in second.devices}
    assert all(device.claim for device in second.devices)


class Person:
    """Somebody whose head reaches all boxes, and reads them all the time."""

    def __init__(self, boxes: list[Box], **options: Any) -> None:
        agents = [box.agent(Host(box.name, **options)) for box in boxes]
        self.hosts = [claims for claims, _ in agents]
        self.said: list[str] = []
        self._reads = [read for _, read in agents]

    async def hold(self, wanted: Wanted) -> list[str]:
        reading = asyncio.create_task(self._read())
        await asyncio.sleep(0)
        try:
            picked = await hold(self.hosts, wanted, training, self.said.append)
        finally:
            reading.cancel()
        return [device.uuid for held in picked for device in held.devices]

    def release(self, uuids: list[str]) -> None:
        for host in self.hosts:
            host.release([uuid for uuid in uuids if uuid.startswith(f"GPU-{host.name}")])

    async def _read(self) -> None:
        while True:
            for read in self._reads:
                read()
            await asyncio.sleep(0.05)


ALL = Wanted(4, wait_s=60.0)


async def test_two_who_wait_for_all_of_two_hosts_get_them_one_after_the_other(
    boxes: list[Box],
) -> None:
    first, second = Person(boxes), Person(boxes[::-1])
    waits = [asyncio.create_task(person.hold(ALL)) for person in (first, second)]
    done, pending = await asyncio.wait(waits, timeout=20, return_when=asyncio.FIRST_COMPLETED)
    assert len(done) == 1 and len(pending) == 1
    winner = first if waits[0] in done else second
    held = done.pop().result()
    assert len(held) == 4
    winner.release(held)
    freed = time.monotonic()
    assert len(await asyncio.wait_for(pending.pop(), 20)) == 4
    assert time.monotonic() - freed < 2.5


async def test_tickets_that_come_to_hosts_in_another_order_are_served_in_one(
    boxes: list[Box],
) -> None:
    first, second = Person(boxes), Person(boxes)
    boxes[1].arriving_s = 0.3
    one = asyncio.create_task(first.hold(ALL))
    while not list(boxes[0].folder.glob("ticket-*")):
        await asyncio.sleep(0.01)
    boxes[1].arriving_s = 0.0
    two = asyncio.create_task(second.hold(ALL))
    done, pending = await asyncio.wait([one, two], timeout=20, return_when="FIRST_COMPLETED")
    assert len(done) == 1
    (first if one in done else second).release(done.pop().result())
    assert len(await asyncio.wait_for(pending.pop(), 20)) == 4


async def test_who_waits_keeps_the_place_though_the_agent_ends(boxes: list[Box]) -> None:
    holder, waiter, later = Person(boxes), Person(boxes), Person(boxes)
    held = await holder.hold(ALL)
    waits = [asyncio.create_task(each.hold(ALL)) for each in (waiter, later)]
    while not (waiter.said and later.said):
        await asyncio.sleep(0.05)
    boxes[1].replace_agent(waiter.hosts[1])
    while len(list(boxes[1].folder.glob("ticket-*"))) < 2:
        await asyncio.sleep(0.05)
    holder.release(held)
    done, _ = await asyncio.wait(waits, timeout=20, return_when="FIRST_COMPLETED")
    assert done == {waits[0]}
    waits[1].cancel()


async def test_a_place_that_is_given_too_late_is_given_up_and_asked_for_again(
    boxes: list[Box],
) -> None:
    holder, first, second = (Person(boxes) for _ in range(3))
    held = await holder.hold(ALL)
    boxes[1].is_late = True
    one = asyncio.create_task(first.hold(ALL))
    while not first.said:
        await asyncio.sleep(0.05)
    two = asyncio.create_task(second.hold(ALL))
    while not second.said:
        await asyncio.sleep(0.05)
    assert "b: no place in line: its agent does not answer" in second.said[0]
    boxes[1].is_late = False
    while len(list(boxes[1].folder.glob("ticket-*"))) < 2:
        await asyncio.sleep(0.05)
    holder.release(held)
    assert len(await asyncio.wait_for(one, 20)) == 4 and not two.done()
    two.cancel()


async def test_what_an_agent_granted_that_has_ended_is_claimed_again(boxes: list[Box]) -> None:
    person, other = Person(boxes), Person(boxes)
    boxes[1].answering_s = 0.5
    holding = asyncio.create_task(person.hold(ALL))
    while not person.hosts[1].taken:
        await asyncio.sleep(0.01)
    boxes[0].replace_agent(person.hosts[0])
    assert len(await asyncio.wait_for(holding, 20)) == 4
    with pytest.raises(ClusterError, match="1 asked for, 0 free"):
        await other.hold(Wanted(1))


async def test_what_another_run_claimed_at_a_new_agent_is_not_this_ones(boxes: list[Box]) -> None:
    person, other = Person(boxes), Person(boxes)
    (mine,) = await hold(person.hosts, Wanted(2), training)
    boxes[0].replace_agent(mine.host)
    assert not mine.lasts
    assert await person.hold(Wanted(4)) == [*boxes[0].uuids, *boxes[1].uuids]
    mine.release()
    with pytest.raises(ClusterError, match="1 asked for, 0 free"):
        await other.hold(Wanted(1))


async def test_nobody_is_kept_from_gpus_that_who_waits_could_not_use(boxes: list[Box]) -> None:
    boxes[1].memory_bytes = 2**34
    holder, waiter, other = (Person(boxes) for _ in range(3))
    await holder.hold(replace(ALL, count=2, memory_bytes=2**36))
    waits = asyncio.create_task(waiter.hold(replace(ALL, count=2, memory_bytes=2**36)))
    while not waiter.said:
        await asyncio.sleep(0.05)
    assert await other.hold(Wanted(2)) == boxes[1].uuids
    waits.cancel()


async def test_who_waits_hears_of_a_host_that_does_not_answer(boxes: list[Box]) -> None:
    holder, waiter = Person(boxes), Person(boxes)
    await holder.hold(Wanted(1))
    waits = asyncio.create_task(waiter.hold(ALL))
    while not waiter.said:
        await asyncio.sleep(0.05)
    waiter.hosts[1].lost = "no message for 5 s"
    while "4 asked for, 1 free; b does not answer\n" not in waiter.said[-1]:
        await asyncio.sleep(0.05)
    assert "b gpu" not in waiter.said[-1]
    waits.cancel()


async def test_two_runs_of_one_cluster_get_other_gpus(boxes: list[Box]) -> None:
    hosts = Person(boxes[:1]).hosts  # that look no more
    runs = await asyncio.gather(*(hold(hosts, Wanted(1), Note) for _ in range(2)))
    held = [uuid for (each,) in runs for uuid in each.uuids]
    assert sorted(held) == boxes[0].uuids
    with pytest.raises(ClusterError, match="too few free GPUs: 1 asked for, 0 free"):
        await hold(hosts, Wanted(1), Note)


async def test_two_runs_of_one_cluster_wait_one_after_the_other(boxes: list[Box]) -> None:
    holder, person = Person(boxes), Person(boxes)
    held = await holder.hold(ALL)
    runs = [asyncio.create_task(person.hold(replace(ALL, count=2))) for _ in range(2)]
    while "a: another run of this cluster waited first" not in person.said:
        await asyncio.sleep(0.05)
    with pytest.raises(ClusterError, match="another run of this cluster waited first"):
        await person.hold(replace(ALL, wait_s=0.5))
    assert [len(list(box.folder.glob("ticket-*"))) for box in boxes] == [1, 1]
    holder.release(held)
    both = await asyncio.wait_for(asyncio.gather(*runs), 20)
    assert sorted(both) == [boxes[0].uuids, boxes[1].uuids]


async def test_who_waits_hears_who_has_the_gpus_and_who_comes_first(boxes: list[Box]) -> None:
    holder, first, second = (Person(boxes) for _ in range(3))
    held = await holder.hold(Wanted(3))
    one = asyncio.create_task(first.hold(ALL))
    while not first.said:
        await asyncio.sleep(0.05)
    two = asyncio.create_task(second.hold(replace(ALL, count=2)))
    while not any("before you: " in why for why in second.said):
        await asyncio.sleep(0.05)
    assert first.said[-1].startswith("too few free GPUs: 4 asked for, 1 free\n  a gpu0: ")
    assert any(
        why.startswith("too few free GPUs: 2 asked for, 1 free; before you: root\n")
        for why in second.said
    )
    assert " · training" in first.said[-1] and "before you" not in first.said[-1]
    holder.release(held)
    all_four = await asyncio.wait_for(one, 20)
    assert not two.done()
    first.release(all_four)
    assert len(await asyncio.wait_for(two, 20)) == 2


@pytest.mark.skipif(os.getuid() != 0, reason="a mount needs root")
async def test_who_finds_no_place_in_line_on_a_full_disk_hears_why_and_waits(
    boxes: list[Box],
) -> None:
    folder = boxes[0].folder
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=32k,mode=1777", "tmpfs", folder], check=True
    )
    try:
        holder, waiter = Person(boxes[:1]), Person(boxes[:1])
        held = await holder.hold(Wanted(2))
        with contextlib.suppress(OSError):
            (folder / "filler").write_bytes(bytes(2**16))
        waiting = asyncio.create_task(waiter.hold(Wanted(2, wait_s=60.0)))
        while not waiter.said:
            await asyncio.sleep(0.05)
        why = "2 asked for, 0 free; a: no place in line: claims: No space left on device"
        assert why in waiter.said[0]
        (folder / "filler").unlink()
        while not list(folder.glob("ticket-*")):
            await asyncio.sleep(0.05)
        holder.release(held)
        assert await asyncio.wait_for(waiting, 20) == held
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


async def test_hosts_that_give_so_many_are_claimed_together_or_not_at_all(boxes: list[Box]) -> None:
    one, other = Person(boxes, free_gpus=2), Person(boxes)
    held = await other.hold(Wanted(1))
    with pytest.raises(ClusterError, match="too few free GPUs: 4 asked for, 3 free"):
        await one.hold(Wanted())
    other.release(held)
    assert await one.hold(Wanted()) == [*boxes[0].uuids, *boxes[1].uuids]


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        (Wanted(3, per_host=3), "too few GPUs: 3 asked for, no host has 3"),
        (Wanted(1, memory_bytes=2**40), r"1 asked for \(1,024 GiB free on each\), 0 on these"),
    ],
)
async def test_what_no_host_could_ever_give_is_not_waited_for(
    boxes: list[Box], wanted: Wanted, why: str
) -> None:
    person = Person(boxes)
    with pytest.raises(ClusterError, match=why):
        await asyncio.wait_for(person.hold(replace(wanted, wait_s=60.0)), 10)


async def test_a_gpu_whose_memory_is_held_by_who_cannot_be_seen_is_not_free(
    boxes: list[Box],
) -> None:
    full, free = boxes[0].uuids
    boxes[0].used_bytes[full] = 70 * 2**30
    assert await Person(boxes[:1]).hold(Wanted(1)) == [free]
    with pytest.raises(ClusterError, match=r"1 asked for, 0 free\n  a gpu0: unknown"):
        await Person(boxes[:1]).hold(Wanted(1))


async def test_a_process_of_several_gpus_gets_no_mig_instance(boxes: list[Box]) -> None:
    boxes[0].labels[0] = "0.1"
    with pytest.raises(ClusterError, match=r"2 asked for \(no MIG instances: CUDA gives a process"):
        await Person(boxes[:1]).hold(Wanted(2, whole=True))
    whole = await Person(boxes).hold(Wanted(2, whole=True))
    assert whole == boxes[1].uuids
    assert await Person(boxes).hold(Wanted(1)) == boxes[0].uuids[:1]


async def test_too_few_on_any_one_host_is_said_so(boxes: list[Box]) -> None:
    await Person(boxes).hold(Wanted(1))
    boxes[1].used_bytes[boxes[1].uuids[0]] = 2**36
    with pytest.raises(ClusterError, match="2 asked for, no host has 2 free"):
        await Person(boxes).hold(Wanted(2, per_host=2))


async def test_a_host_without_a_gpu_that_its_line_names_is_named(boxes: list[Box]) -> None:
    without, other = Person(boxes[:1]), Person(boxes[1:])
    without.hosts[0].no_gpu, without.hosts[0].devices = "no GPU 7: it has 0, 1", ()
    with pytest.raises(ClusterError, match="3 asked for, 2 on these hosts; a: no GPU 7: it has"):
        await hold([*without.hosts, *other.hosts], Wanted(3), training)


async def test_only_gpus_that_would_do_count_as_free(boxes: list[Box]) -> None:
    other, person = Person(boxes), Person(boxes)
    await other.hold(Wanted(1))
    await asyncio.sleep(0)
    with pytest.raises(ClusterError, match=r"4 asked for \(2 of each host\), 2 free"):
        await person.hold(Wanted(4, per_host=2))


async def test_who_does_not_wait_leaves_gpus_of_one_host_to_who_waits_and_has_others(
    boxes: list[Box],
) -> None:
    holder, waiter, person = Person(boxes[:1]), Person(boxes[:1]), Person(boxes)
    await holder.hold(Wanted(1))
    waits = asyncio.create_task(waiter.hold(Wanted(2, wait_s=60.0)))
    while not waiter.said:
        await asyncio.sleep(0.05)
    assert await person.hold(Wanted(1)) == boxes[1].uuids[:1]
    assert await person.hold(Wanted(1, wait_s=60.0)) == boxes[1].uuids[1:]
    with pytest.raises(
        ClusterError, match=r"(?s)^a: root waited first\n  a gpu0: root .*\n  add --wait 2h"
    ):
        await Person(boxes).hold(Wanted(1))
    waits.cancel()


async def test_a_host_whose_claims_fail_is_named_and_the_others_give_theirs(
    boxes: list[Box],
) -> None:
    boxes[0].folder.chmod(0o700)
    why = f"\na: claims: {boxes[0].folder} has mode 700, not 1777"
    holder, person = Person(boxes), Person(boxes)
    with pytest.raises(ClusterError, match=f" 4 asked for, 2 free{why}$"):
        await person.hold(Wanted(4))
    assert await holder.hold(Wanted(1)) == boxes[1].uuids[:1]
    with pytest.raises(ClusterError, match=f" 2 asked for, 1 free{why}\n.*\n  add --wait 2h"):
        await person.hold(Wanted(2))


async def test_gpus_that_others_took_a_moment_ago_leave_the_rest(boxes: list[Box]) -> None:
    *people, last = [Person(boxes) for _ in range(5)]  # who do not look again
    picked = [await hold(each.hosts, Wanted(1), Note) for each in people]
    held = {uuid for some in picked for each in some for uuid in each.uuids}
    assert held == {*boxes[0].uuids, *boxes[1].uuids}
    with pytest.raises(ClusterError, match="too few free GPUs: 1 asked for, 0 free"):
        await hold(last.hosts, Wanted(1), Note)


async def test_a_gpu_that_somebody_waited_for_a_moment_ago_is_asked_for(boxes: list[Box]) -> None:
    late, other = Person(boxes[:1]), Person(boxes[:1])
    (host,) = late.hosts
    host.devices = tuple(replace(each, waiting=("root",)) for each in host.devices)
    (first,) = await other.hold(Wanted(1))
    (held,) = await hold([host], Wanted(1), Note)
    assert held.uuids == {*boxes[0].uuids} - {first}


async def test_a_wait_that_is_over_says_so(boxes: list[Box]) -> None:
    await Person(boxes).hold(Wanted(4))
    with pytest.raises(ClusterError, match=r"0 free\n(?s:.*)\n  the wait of 1s is over$"):
        await Person(boxes).hold(Wanted(1, wait_s=1.0))


async def test_an_answer_of_an_agent_that_is_lost_releases_the_others(boxes: list[Box]) -> None:
    person = Person(boxes)
    person.hosts[1].claim = refusing  # type: ignore[method-assign]
    with pytest.raises(ClusterError, match="its agent ended"):
        await person.hold(Wanted(4))
    assert len(await Person(boxes).hold(Wanted(4))) == 4


async def refusing(*_: object) -> Claimed:
    return Claimed(0, error="its agent ended")
