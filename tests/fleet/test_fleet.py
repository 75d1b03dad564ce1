"""A whole fleet on simulated agents: what it makes of cuts, restarts and workers that hang."""

from collections.abc import AsyncIterator, Callable
from dataclasses import replace

import pytest

from gputui.demo.devices import SimulatedGpu
from gputui.model.hosts import Host
from gputui.model.readings import DeviceReading, HostReading, Note, Wanted
from gputui.model.snapshot import AWAY, HostState, WorkerState
from gputui.protocol.agent import (
    ClaimGpus,
    FromAgent,
    KeepLease,
    Ping,
    ReleaseGpus,
    RestartWorkers,
    StandInLine,
    StartWorkers,
    Telemetry,
    WorkerExited,
    WorkerReady,
)
from gputui.protocol.shared import Credentials, LogLines
from tests.fleet.simulated import SimulatedFleet

Begin = Callable[..., SimulatedFleet]


@pytest.fixture
async def begin() -> AsyncIterator[Begin]:
    begun = []

    def begin(hosts: int = 1, **settings: object) -> SimulatedFleet:
        begun.append(SimulatedFleet(hosts, **settings))
        return begun[-1]

    yield begin
    for one in begun:
        await one.fleet.stop(0.1)


async def test_a_fleet_is_settled_once_every_worker_is_up_and_not_before(begin: Begin) -> None:
    one = begin(3)
    assert not one.fleet.settled
    await one.until(lambda: one.fleet.settled)
    assert len(one.fleet.worker_table.up) == 6


async def test_a_restart_while_the_connection_is_lost_is_counted(begin: Begin) -> None:
    one = begin()
    await one.up(2)
    agent = one.agent()
    agent.cut()
    agent.workers["h0:gpu0"] = replace(agent.workers["h0:gpu0"], pid=99, restarts=1)
    await one.until(lambda: one.head.restarted)
    assert one.head.restarted == ["h0:gpu0"]
    (status, _) = one.fleet.worker_statuses
    assert (status.pid, status.restarts) == (99, 1)


async def test_what_workers_printed_before_is_sent_once_however_often_a_host_reconnects(
    begin: Begin,
) -> None:
    one = begin()
    await one.up(2)
    one.agent().print("h0:gpu0", ["before"])
    one.fleet.follow_logs(True)
    await one.until(lambda: one.head.logs)
    for _ in range(2):
        asked = len(one.followed())
        one.agent().cut()
        await one.until(lambda asked=asked: len(one.followed()) > asked)
    one.agent().print("h0:gpu0", ["after"])
    await one.until(lambda: one.head.logs[-1].lines == ("after",))
    assert [lines.lines for lines in one.head.logs] == [("before",), ("after",)]


async def test_a_cut_connection_and_an_ended_agent_are_not_taken_for_each_other(
    begin: Begin,
) -> None:
    one = begin(2)
    await one.up(4)
    one.agent("h0").cut()
    one.agent("h1").end()
    await one.until(
        lambda: (
            {subject for _, subject, kind, _ in one.head.events if kind == "reconnecting"}
            == {"h0", "h1"}
        )
    )
    reasons = {s: text for _, s, kind, text in one.head.events if kind == "reconnecting"}
    assert reasons == {"h0": "the connection to its agent was cut", "h1": "its agent ended"}


async def test_a_host_is_tried_often_while_its_workers_live_which_are_silent_with_it(
    begin: Begin,
) -> None:
    one = begin(reconnect_s=(0.01, 60.0), ping_interval_s=0.05)
    await one.up(2)
    one.agent().reachable = False
    one.agent().cut()
    for _ in range(3):
        one.head.changed.clear()
        await one.head.changed.wait()
    await one.until(lambda: one.fleet.host_statuses[0].state in AWAY)
    assert {status.state for status in one.fleet.worker_statuses} == {WorkerState.SILENT}
    one.agent().reachable = True
    await one.until(lambda: one.fleet.host_statuses[0].state is HostState.READY)
    assert all(status.state.up for status in one.fleet.worker_statuses)
    assert not any(kind == "lost" for _, _, kind, _ in one.head.events)


async def test_an_agent_that_was_heard_a_moment_ago_is_sent_nothing_to_keep_its_lease(
    begin: Begin,
) -> None:
    one = begin(ping_interval_s=60.0)
    await one.up(2)
    assert KeepLease() not in one.agent().taken


async def test_an_agent_is_asked_for_an_answer_only_while_it_says_nothing(begin: Begin) -> None:
    one = begin(ping_interval_s=1.0, silence_s=4.0, telemetry_interval_s=0.01)
    await one.up(2)
    taken = one.agent().taken
    await one.until(lambda: taken.count(KeepLease()) >= 2)
    assert not any(isinstance(each, Ping) for each in taken)

    one = begin(ping_interval_s=0.1, silence_s=0.4, telemetry_interval_s=60.0)
    await one.up(2)
    taken = one.agent().taken
    await one.until(lambda: sum(isinstance(each, Ping) for each in taken) >= 6)
    assert one.fleet.host_statuses[0].state is HostState.READY
    assert not any(kind == "silent" for _, _, kind, _ in one.head.events)


async def test_a_worker_that_never_registers_is_given_up_and_starts_when_asked(
    begin: Begin,
) -> None:
    one = begin(start_timeout_s=0.05)
    one.fleet.follow_logs(True)
    one.agent().registers = False
    await one.until(lambda: one.fleet.settled and one.fleet.worker_statuses)
    statuses = one.fleet.worker_statuses
    assert {status.state for status in statuses} == {WorkerState.CRASH_LOOP}
    assert statuses[0].reason == "it did not register with the scheduler within 0.05 s"
    await one.until(lambda: one.agent().workers == {})
    one.agent().cut()
    await one.until(lambda: one.fleet.host_statuses[0].state is HostState.READY)
    assert one.agent().workers == {}
    one.agent().registers = True
    one.fleet.worker_table.restart([status.name for status in statuses])
    await one.up(2)


async def test_a_scheduler_that_comes_again_restarts_only_workers_that_do_not_start_already(
    begin: Begin,
) -> None:
    one = begin()
    await one.up(2)
    first, second = (status.name for status in one.fleet.worker_statuses)
    one.agent().registers = False
    one.fleet.worker_table.restart([first])
    await one.until(lambda: one.fleet.worker_table.starting == {first})
    one.fleet.scheduler_listens(8786)
    await one.until(lambda: one.fleet.worker_table.starting == {first, second})
    restarts = [each.names for each in one.agent().taken if isinstance(each, RestartWorkers)]
    assert restarts == [(first,), (second,)]


async def test_a_scheduler_that_cannot_retire_keeps_the_workers(begin: Begin) -> None:
    one = begin()
    await one.up(2)
    one.head.scheduler_there = False
    one.fleet.set_desired(replace(one.fleet.desired, workers=1))
    await one.until(lambda: any(kind == "kept" for _, _, kind, _ in one.head.events))
    assert len(one.fleet.worker_table.up) == 2


async def test_a_crash_is_an_event_with_its_cause(begin: Begin) -> None:
    one = begin()
    await one.up(2)
    one.agent().say(WorkerExited("h0:gpu0", "crashed", "it cannot listen on 10.0.0.7", None, True))
    await one.until(lambda: any(kind == "crash loop" for _, _, kind, _ in one.head.events))
    assert one.head.events[-1][1:] == ("h0:gpu0", "crash loop", "it cannot listen on 10.0.0.7")


def refused(one: SimulatedFleet, host: str) -> str:
    status = next(status for status in one.fleet.host_statuses if status.name == host)
    return status.reason if status.state is HostState.FAILED else ""


@pytest.mark.parametrize(
    ("lie", "reason"),
    [
        (WorkerReady("h0:gpu0", "tls://10.9.9.9:1", None), "'h0:gpu0', which is no worker of this"),
        (WorkerExited("h0:gpu0", "crashed", "", None, False), "'h0:gpu0', which is no worker of"),
        (LogLines("h0:gpu0", ("all is well",), 0.0), "'h0:gpu0', which is no worker of this host"),
        (
            Telemetry(0.0, HostReading(), (DeviceReading("GPU-h0-1", "1", "H200"),), ()),
            "GPU-h0-1, a GPU of h0",
        ),
        *(
            (
                Telemetry(0.0, HostReading(), (DeviceReading("GPU-h1-1", label, "H200"),), ()),
                "its agent reports a GPU with the label '1",
            )
            for label in ("1:x", "1" * 512, "1\n")
        ),
        (
            Telemetry(0.0, HostReading(), tuple(DeviceReading(u, "1", "H200") for u in "ab"), ()),
            "its agent reports one GPU twice",
        ),
    ],
)
async def test_a_host_that_speaks_for_another_one_is_refused_and_changes_nothing_there(
    begin: Begin, lie: FromAgent, reason: str
) -> None:
    one = begin(2)
    await one.up(4)
    before = [worker for worker in one.fleet.worker_statuses if worker.host == "h0"]
    one.agent("h1").say(lie)
    await one.until(lambda: refused(one, "h1"))
    assert reason in refused(one, "h1")
    assert [worker for worker in one.fleet.worker_statuses if worker.host == "h0"] == before
    assert not one.head.logs


async def test_a_line_that_is_no_message_fails_that_host_alone(begin: Begin) -> None:
    one = begin(2)
    await one.up(4)
    channel = one.agent("h1")._channel
    channel.stream.write(b'["Telemetry",{"at":0.0,"host":{},"devices":[1],"workers":[]}]\n')
    await one.until(lambda: refused(one, "h1"))
    assert one.fleet.host_statuses[0].state is HostState.READY


async def test_a_gpu_does_not_change_hands_once_its_host_was_ready(begin: Begin) -> None:
    one = begin(2)
    one.agent("h0").reachable = False
    await one.up(2)
    one.agent("h0").gpus = one.agent("h1").gpus
    one.agent("h0").reachable = True
    one.fleet.retry(["h0"])
    await one.until(lambda: "same machine as h1" in refused(one, "h0"))
    assert one.fleet.host_statuses[1].state is HostState.READY


async def test_a_gpu_that_two_hosts_share_is_shown_on_the_one_it_is_chosen_on(begin: Begin) -> None:
    one = begin(0)
    for name, gpus in (("here", ("0",)), ("there", ("1",))):
        one.agent(name).gpus = [SimulatedGpu(label, f"GPU-{label}") for label in "012"]
        one.fleet.add_hosts([Host(name, gpus=gpus)])
    await one.up(2)
    shown = {host.name: [gpu.uuid for gpu in host.devices] for host in one.fleet.host_statuses}
    assert sorted(shown["here"] + shown["there"]) == ["GPU-0", "GPU-1", "GPU-2"]
    assert "GPU-0" in shown["here"] and "GPU-1" in shown["there"]


async def test_a_host_is_removed_once_however_often_that_is_asked(begin: Begin) -> None:
    one = begin(2)
    await one.up(4)
    for _ in range(2):
        one.fleet.remove_hosts(["h0", "h0"])
    await one.until(lambda: "removed" in [kind for _, _, kind, _ in one.head.events])
    assert [host.name for host in one.fleet.hosts] == ["h1"]
    assert "failed" not in [kind for _, _, kind, _ in one.head.events]


async def test_gpus_of_a_removed_host_are_replaced_and_are_claimed_if_it_comes_again(
    begin: Begin,
) -> None:
    one = begin(1, wanted=Wanted(2))
    await one.up(2)
    for old, new in (("h0", "h1"), ("h1", "h0")):
        one.agent(old).taken.clear()
        one.fleet.add_hosts([Host(new)])
        one.fleet.remove_hosts([old])
        names = {f"{new}:gpu0", f"{new}:gpu1"}
        await one.until(lambda names=names: set(one.fleet.worker_table.up) == names)
        assert any(isinstance(each, ClaimGpus) for each in one.agent(new).taken)


async def test_a_claim_that_ends_while_its_host_is_away_is_released_there_afterwards(
    begin: Begin,
) -> None:
    one = begin(1, gpus=3, wanted=Wanted(2))
    await one.up(2)
    host = one.fleet._hosts["h0"]
    await host.claims.claim(host.claims.devices[2:], Note())
    one.agent().cut()
    await one.until(lambda: host.state is not HostState.READY)
    host.claims.release(["GPU-h0-2"])
    await one.until(lambda: any(isinstance(each, ReleaseGpus) for each in one.agent().taken))
    said = [each for each in one.agent().taken if isinstance(each, (ReleaseGpus, StandInLine))]
    assert said == [ReleaseGpus(0, ("GPU-h0-2",)), StandInLine(0, (), 0, Note())]


async def test_credentials_are_sent_to_hosts_that_are_accepted_only(begin: Begin) -> None:
    one = begin(2)
    one.fleet.give_credentials(Credentials("certificate", "key", "{}"))
    one.agent("h1").packages = (("dask", "1.0"),)
    await one.until(lambda: refused(one, "h1"))
    await one.up(2)
    kinds = {host: [type(each) for each in one.agent(host).taken] for host in ("h0", "h1")}
    assert Credentials not in kinds["h1"]
    assert kinds["h0"].index(Credentials) < kinds["h0"].index(StartWorkers)
