"""Hosts with the agent itself: installed here, packed for the others."""

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gputui.fleet.deploy.remote import load_pack
from gputui.fleet.lone_agents import lone_agents
from gputui.fleet.session import END_S
from gputui.fleet.stages import FleetSettings
from gputui.model.hosts import Host
from gputui.model.snapshot import HostState as S
from tests import fakes
from tests.fleet.conftest import Reaching, nobody
from tests.processes import command_of, ended, lives, marked, nothing_left, processes_of
from tests.sshd import Namespaces, SshHosts
from tests.system.parts import part_of

LOCAL = Host("localhost", gpus=())


@pytest.fixture
async def agents() -> AsyncIterator[Reaching]:
    """Hosts with the agent itself, and a port that stands in for the scheduler's."""
    reaching = Reaching(load_pack())
    id = f"test-{os.getpid()}-{os.urandom(3).hex()}"
    reaching.configure(cluster_id=id, lease_s=60.0)
    with socket.create_server(("", 0)) as scheduler:
        reaching.port = scheduler.getsockname()[1]
        yield reaching
        await reaching.close()
    await nothing_left(id)


async def test_a_host_starts_python_once_for_its_agent(
    agents: Reaching, openssh_hosts: SshHosts, tmp_path: Path
) -> None:
    setup = f"env >{tmp_path}/of-setup"
    host = await agents.over(openssh_hosts, python=sys.executable, setup=setup)
    of_setup = (tmp_path / "of-setup").read_text()  # what that starts is not the cluster's
    assert "\nGPUTUI_FIND=" in of_setup and "\nGPUTUI_CLUSTER=" not in of_setup
    _, option, code, role = command_of(host.facts.agent_pid)
    assert (option, code.partition(" ")[0], role) == ("-c", "gputui", "relay")
    await agents.end(host)


async def test_a_relay_that_is_killed_is_replaced_and_the_agent_taken_over(
    agents: Reaching, openssh_hosts: SshHosts
) -> None:
    host = await agents.over(openssh_hosts)
    listener = agents.listeners["ssh1"]
    agent = host.facts.agent_pid
    for pid in processes_of(agents.settings.cluster_id):
        if "relay" in command_of(pid) and pid != agent:
            os.kill(pid, signal.SIGKILL)
    await listener.until(lambda: S.RECONNECTING in listener.states)
    await agents.end(host)
    assert host.facts.agent_pid == agent


async def test_a_host_that_is_off_the_network_for_less_than_its_lease_is_taken_over(
    agents: Reaching, namespace_hosts: Namespaces
) -> None:
    agents.configure(silence_s=1.0, ping_interval_s=0.3, lease_s=20.0)
    cut = namespace_hosts.hosts[1]
    host = await agents.over(namespace_hosts, cut.name)
    listener = agents.listeners[cut.name]
    agent = host.facts.agent_pid
    namespace_hosts.cut(cut)
    try:
        await listener.until(lambda: S.RECONNECTING in listener.states)
    finally:
        namespace_hosts.mend(cut)
    await agents.end(host)
    assert host.facts.agent_pid == agent


@pytest.mark.slow
async def test_the_lease_holds_behind_a_jump_host_that_is_off_the_network_for_8_s(
    agents: Reaching, namespace_hosts: Namespaces, tmp_path: Path
) -> None:
    jump, behind, _ = namespace_hosts.hosts
    config = tmp_path / "config"
    section = namespace_hosts.section(behind).rstrip()
    config.write_text(f"{section}\n  ProxyJump {jump.name}\n{namespace_hosts.section(jump)}")
    agents.configure(
        ssh_config=str(config), lease_s=10.0, ping_interval_s=1.0, stage_timeout_s=10.0
    )
    host = await agents.end(agents.begin(Host(behind.name, gpus=())))
    agent = host.facts.agent_pid
    namespace_hosts.cut(jump)
    await asyncio.sleep(8)
    namespace_hosts.mend(jump)
    listener = agents.listeners[behind.name]
    await listener.until(lambda: host.state is S.READY)
    assert host.facts.agent_pid == agent


async def test_a_host_whose_head_is_gone_ends_its_agent_with_the_lease(agents: Reaching) -> None:
    agents.configure(lease_s=0.5, reconnect_s=(60.0,))
    host = await agents.end(agents.begin(LOCAL))
    for pid in processes_of(agents.settings.cluster_id):
        if "relay" in command_of(pid) and host.facts and pid != host.facts.agent_pid:
            os.kill(pid, signal.SIGKILL)
    await nothing_left(agents.settings.cluster_id)
    assert host.facts and not lives(host.facts.agent_pid)


@pytest.mark.slow
async def test_a_host_whose_driver_takes_longer_than_the_lease_is_ready(
    agents: Reaching, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(fakes.__file__).parent))
    monkeypatch.setenv("GPUTUI_FAKE_NVML", json.dumps({"gpus": 1, "hang": ["*"]}))
    agents.configure(lease_s=1.0, ping_interval_s=0.1, stage_timeout_s=30.0)
    host = await agents.end(agents.begin(LOCAL))
    assert host.state is S.READY, host.status
    assert host.facts and not host.facts.gpus_known


async def test_agents_without_a_cluster_end_in_order_also_while_that_is_interrupted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mark = f"test-{os.getpid()}-{os.urandom(3).hex()}"
    monkeypatch.setenv("GPUTUI_TEST", mark)
    opened, leave = asyncio.Event(), asyncio.Event()

    async def use() -> None:
        async with lone_agents([LOCAL], FleetSettings("none", lease_s=60.0), nobody) as found:
            assert found[0].state is S.READY
            opened.set()
            await leave.wait()

    using = asyncio.create_task(use())
    await opened.wait()
    (agent,) = (p for p in marked(f"GPUTUI_TEST={mark}") if part_of(p) == "agent")
    os.kill(agent, signal.SIGSTOP)
    try:
        leave.set()
        await asyncio.sleep(0)  # it waits for the agent now
        await asyncio.sleep(0)
        using.cancel()
        await asyncio.wait([using], timeout=0.5)
        assert not using.done()
    finally:
        os.kill(agent, signal.SIGCONT)
    with pytest.raises(asyncio.CancelledError):
        await using
    await ended(agent, bound_s=END_S)
