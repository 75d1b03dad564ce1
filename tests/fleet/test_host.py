"""The life of a host on this machine, its agent played by the stand-in."""

import asyncio
import os
import signal
from typing import NoReturn

import pytest

from gputui.errors import HostError
from gputui.fleet.session import OpenedAgent
from gputui.fleet.stages import Stages
from gputui.model.hosts import Host
from gputui.model.snapshot import HostState as S
from gputui.protocol.shared import FollowLogs
from tests.fleet.conftest import LOCAL, Reaching


async def test_a_local_host_becomes_ready_through_its_states(reaching: Reaching) -> None:
    host = await reaching.end(reaching.begin_local())
    assert host.state is S.READY, host.status
    assert reaching.listeners["localhost"].states == [S.PROBING, S.CHECKING, S.READY]
    assert host.scheduler_address == "tls://127.0.0.1:8786"


async def test_a_host_waits_in_reaching_until_the_scheduler_is_known(reaching: Reaching) -> None:
    host = reaching.begin_local(scheduler=False)
    await reaching.listeners["localhost"].until(lambda: host.state is S.CHECKING)
    assert host.status.reason == "waiting for the scheduler"
    reaching.scheduler_ports["localhost"].set_result(4711)
    assert (await reaching.end(host)).state is S.READY


async def test_a_local_agent_is_out_of_reach_of_ctrl_c(reaching: Reaching) -> None:
    host = await reaching.end(reaching.begin_local())
    assert os.getsid(host.facts.agent_pid) != os.getsid(0)


async def test_a_silent_agent_is_silent_and_then_reconnecting(reaching: Reaching) -> None:
    reaching.configure(silence_s=0.6, ping_interval_s=0.2, lease_s=0.5)
    host = reaching.begin_local(deaf=True)
    listener = reaching.listeners["localhost"]
    await listener.until(lambda: S.RECONNECTING in listener.states)
    assert listener.states[-3:] == [S.READY, S.SILENT, S.RECONNECTING]
    assert "no message" in host.status.reason


async def test_a_host_whose_reconnection_times_out_is_tried_again(
    reaching: Reaching, monkeypatch: pytest.MonkeyPatch
) -> None:
    reaching.configure(silence_s=0.3, ping_interval_s=0.1, lease_s=0.5, reconnect_s=(0.01,))
    host = await reaching.end(reaching.begin_local(deaf=True))

    async def no_answer(of: Host, stages: Stages) -> NoReturn:
        async with stages.enter(S.CONNECTING, "no answer", bound_s=0.05):
            await asyncio.Event().wait()
        raise AssertionError

    listener = reaching.listeners["localhost"]
    with monkeypatch.context() as patched:
        patched.setattr(reaching.shared, "open", no_answer)
        await listener.until(lambda: host.status.reason == "no answer")
    await listener.until(lambda: host.state is S.READY)


async def test_a_lost_host_says_when_the_lease_of_its_workers_is_over(
    reaching: Reaching, monkeypatch: pytest.MonkeyPatch
) -> None:
    reaching.configure(lease_s=0.2, ping_interval_s=0.1, reconnect_s=(60.0,))
    host = await reaching.end(reaching.begin_local())

    async def no_way(host: Host, stages: object) -> NoReturn:
        raise HostError(host.name, S.PROBING, "no way there", transient=True)

    with monkeypatch.context() as patched:
        patched.setattr(reaching.shared, "open", no_way)
        os.kill(host.facts.agent_pid, signal.SIGKILL)
        listener = reaching.listeners["localhost"]
        await listener.until(lambda: host.lease_over and host.state is S.RECONNECTING)
    host.retry()
    assert (await reaching.end(host)).state is S.READY
    assert not host.lease_over


async def test_what_is_sent_while_a_host_is_reached_never_comes_before_its_configuration(
    reaching: Reaching, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = reaching.begin_local()
    opening, sent = reaching.shared.open, []

    async def open_and_send(of: Host, stages: Stages) -> OpenedAgent:
        opened = await opening(of, stages)
        asyncio.get_running_loop().call_soon(lambda: sent.append(host.send(FollowLogs(True))))
        return opened

    monkeypatch.setattr(reaching.shared, "open", open_and_send)
    assert (await reaching.end(host)).state is S.READY
    assert sent == [False]


async def test_stop_says_that_the_agent_has_ended(reaching: Reaching) -> None:
    host = await reaching.end(reaching.begin_local())
    assert await host.stop(1.0)


async def test_stop_does_not_wait_for_a_host_that_is_being_reached(reaching: Reaching) -> None:
    host = reaching.begin_local(mute=True)
    await reaching.listeners["localhost"].until(lambda: host.state is S.PROBING)
    assert not await host.stop(1.0) or host.facts is None


async def test_another_dask_is_refused_with_both_versions_and_the_line_that_mends_it(
    reaching: Reaching,
) -> None:
    host = await reaching.end(reaching.begin_local(facts={"packages": {"dask": "2024.1.0"}}))
    assert (host.state, host.status.failed_stage) == (S.FAILED, "probing")
    assert "dask 2024.1.0, but" in host.status.reason
    assert "-m pip install dask==" in host.status.hint


async def test_a_python_that_is_not_there_is_refused(reaching: Reaching) -> None:
    host = await reaching.end(reaching.begin(LOCAL.__class__("localhost", python="/no/python")))
    assert "/no/python: No such file" in host.status.reason
    assert "bootstrap" in host.status.hint


async def test_a_scheduler_out_of_reach_is_refused_with_both_addresses(reaching: Reaching) -> None:
    host = await reaching.end(reaching.begin_local(unreachable="No route to host"))
    assert host.status.failed_stage == "checking"
    assert "127.0.0.1 cannot reach the scheduler at 127.0.0.1:8786" in host.status.reason
    assert "DASK_GPUTUI__SCHEDULER__HOST" in host.status.hint


async def test_an_agent_that_dies_at_once_leaves_its_last_log_lines(reaching: Reaching) -> None:
    host = await reaching.end(reaching.begin_local(die="the end is near", scheduler=False))
    assert host.state is S.FAILED
    assert "the end is near" in host.status.stderr_tail
    assert host.status.reason.endswith(" before it was ready: the end is near")


async def test_an_agent_that_never_answers_is_refused_in_its_bound(
    reaching: Reaching, monkeypatch: pytest.MonkeyPatch
) -> None:
    reaching.hurry(monkeypatch, "its agent started and then said nothing for", 0.3)
    host = await reaching.end(reaching.begin_local(mute=True))
    assert "its agent started and then said nothing for" in host.status.reason


@pytest.mark.slow
async def test_a_refused_host_can_be_tried_again(reaching: Reaching) -> None:
    host = await reaching.end(reaching.begin_local(unreachable="Connection refused"))
    listener = reaching.listeners["localhost"]
    listener.states.clear()
    host.retry()
    await listener.until(lambda: S.PROBING in listener.states)
    assert (await reaching.end(host)).state is S.FAILED
