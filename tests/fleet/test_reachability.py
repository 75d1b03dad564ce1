"""Hosts that reach the head, while it does not reach them, or they not each other."""

import asyncio
import contextlib
import os
import subprocess
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gputui.fleet.checks import Finding, Verdict
from gputui.fleet.deploy.start_agent import AgentOpener
from gputui.fleet.desired import Desired
from gputui.fleet.doctor import diagnose, listening
from gputui.fleet.fleet import Fleet
from gputui.fleet.stages import FleetSettings
from gputui.model.hosts import Host
from gputui.model.snapshot import HostState, HostStatus
from tests.fleet.conftest import nobody
from tests.fleet.simulated import Head
from tests.processes import nothing_left
from tests.sshd import Namespaces, SshHost, free_port

NAMED_S = 10
IP_FORWARD = "/proc/sys/net/ipv4/ip_forward"


@contextlib.contextmanager
def no_route(hosts: Namespaces, source: SshHost, target: SshHost) -> Iterator[None]:
    hosts.ip(source, f"route add unreachable {target.address}")
    try:
        yield
    finally:
        hosts.ip(source, f"route del unreachable {target.address}")


FORWARD = """
table ip rented {{
  chain in {{
    type nat hook prerouting priority -100
    tcp dport {} dnat to {}:{}
  }}
  chain out {{
    type nat hook postrouting priority 100
    masquerade
  }}
}}
"""


@contextlib.contextmanager
def forwarded(hosts: Namespaces, gateway: SshHost, port: int, host: SshHost) -> Iterator[None]:
    """Have a gateway forward a port of its own to a host's sshd, as rented machines have it."""
    setting = ["ip", "netns", "exec", hosts.namespace(gateway), "tee", IP_FORWARD]
    with hosts.rules(gateway, FORWARD.format(port, host.address, host.port)):
        subprocess.run(setting, input=b"1", check=True, stdout=subprocess.DEVNULL)
        yield
        subprocess.run(setting, input=b"0", check=True, stdout=subprocess.DEVNULL)


@contextlib.asynccontextmanager
async def came_up(config: Path, *lines: Host) -> AsyncIterator[dict[str, HostStatus]]:
    """Bring a fleet up, and yield its hosts' ends; the scheduler's port is that of a listener."""
    settings = FleetSettings(f"test-{os.urandom(6).hex()}", ssh_config=str(config))
    head = Head()
    fleet = Fleet(settings, Desired(0), AgentOpener(settings), **head.for_fleet())
    with listening(0) as port:
        fleet.scheduler_listens(port)
        fleet.add_hosts(lines)
        try:
            async with asyncio.timeout(3 * NAMED_S):
                while not all(status.state.final for status in fleet.host_statuses):
                    head.changed.clear()
                    await head.changed.wait()
            yield {status.name: status for status in fleet.host_statuses}
        finally:
            await fleet.stop(0.5)
    await nothing_left(settings.cluster_id)


async def test_a_host_whose_workers_this_machine_cannot_reach_is_named_with_both_addresses(
    namespace_hosts: Namespaces,
) -> None:
    shut, open_, _ = namespace_hosts.hosts
    with namespace_hosts.firewall(shut):
        lines = [Host(each.name, gpus=(), tunnel=False) for each in (shut, open_)]
        async with came_up(namespace_hosts.config, *lines) as found:
            assert found[open_.name].state is HostState.READY, found[open_.name].reason
            reason = found[shut.name].reason
            assert f"the workers of {shut.name} at {shut.address}: no answer" in reason
            assert namespace_hosts.head_address in reason or open_.address in reason


async def test_a_host_waits_for_a_scheduler_that_is_being_started_again(
    namespace_hosts: Namespaces,
) -> None:
    settings = FleetSettings(f"test-{os.urandom(6).hex()}", ssh_config=str(namespace_hosts.config))
    fleet = Fleet(settings, Desired(0), AgentOpener(settings), **Head().for_fleet())
    port = free_port()
    fleet.scheduler_listens(port)
    fleet.add_hosts([Host(namespace_hosts.hosts[0].name, gpus=())])
    try:
        async with asyncio.timeout(NAMED_S):
            while (host := fleet.host_statuses[0]).state is not HostState.CHECKING:
                await asyncio.sleep(0.02)
            await asyncio.sleep(0.5)  # in which it is refused
            with listening(port):
                while not (host := fleet.host_statuses[0]).state.final:
                    await asyncio.sleep(0.02)
        assert (host.state, host.warnings) == (HostState.READY, ()), host.reason
    finally:
        await fleet.stop(0.5)
    await nothing_left(settings.cluster_id)


@pytest.mark.slow
async def test_a_host_that_is_shut_fails_alone_whoever_is_checked_first(
    namespace_hosts: Namespaces,
) -> None:
    shut, *others = namespace_hosts.hosts
    with namespace_hosts.firewall(shut):
        for lines in ([shut, *others], [*others, shut]):
            async with came_up(
                namespace_hosts.config, *(Host(x.name, gpus=()) for x in lines)
            ) as up:
                assert {name for name, it in up.items() if it.state is HostState.FAILED} == {
                    shut.name
                }


@pytest.mark.slow
@pytest.mark.parametrize("out", [True, False])
async def test_a_host_that_lets_in_ssh_only_has_its_workers_go_through_that(
    namespace_hosts: Namespaces, out: bool
) -> None:
    shut = namespace_hosts.hosts[0]
    with namespace_hosts.firewall(shut, out=out):
        async with came_up(namespace_hosts.config, Host(shut.name, gpus=())) as found:
            assert found[shut.name].state is HostState.READY, found[shut.name].reason
            (warning,) = found[shut.name].warnings
            assert warning.startswith("its workers go through its SSH connection: ")
            assert ": no answer within" in warning


async def test_hosts_that_all_go_through_ssh_come_up(namespace_hosts: Namespaces) -> None:
    names = ["localhost", *(each.name for each in namespace_hosts.hosts)]
    lines = [Host(each, gpus=(), tunnel=True) for each in names]
    with namespace_hosts.firewall(namespace_hosts.hosts[0], out=False):
        async with came_up(namespace_hosts.config, *lines) as found:
            assert [each.reason for each in found.values()] == ["", "", "", ""]


def ways_between(first: SshHost, second: SshHost) -> tuple[str, ...]:
    """Return the beginnings of what is said of a way that is closed, in either direction."""
    return tuple(
        f"{a.name} ({a.address}) cannot reach the workers of {b.name} at {b.address}: "
        for a, b in ((first, second), (second, first))
    )


async def test_two_hosts_without_a_route_between_them_are_named(
    namespace_hosts: Namespaces,
) -> None:
    first, second, _ = namespace_hosts.hosts
    with no_route(namespace_hosts, first, second):
        lines = [Host(each.name, gpus=()) for each in (first, second)]
        async with came_up(namespace_hosts.config, *lines) as found:
            failed = [each for each in found.values() if each.state is HostState.FAILED]
            assert len(failed) == 1
            assert failed[0].reason.startswith(ways_between(first, second)), failed[0].reason


async def test_workers_behind_a_forwarded_port_listen_on_the_hosts_own_address(
    namespace_hosts: Namespaces, tmp_path: Path
) -> None:
    host, gateway, _ = namespace_hosts.hosts
    outside = replace(gateway, name="rented", port=2299)
    config = tmp_path / "ssh_config"
    config.write_text(
        f"{namespace_hosts.section(outside)}  HostKeyAlias [{host.address}]:{host.port}\n"
    )
    with forwarded(namespace_hosts, gateway, outside.port, host):
        async with came_up(config, Host("rented", gpus=())) as found:
            assert found["rented"].reason == ""
            assert found["rented"].state is HostState.READY


async def test_a_firewall_lets_the_ports_in_that_the_line_names(
    namespace_hosts: Namespaces,
) -> None:
    hosts = namespace_hosts.hosts[:2]
    ways = {"ports": (40000, 40002), "listen": "eth0"}
    lines = [Host(each.name, gpus=(), workers=2, **ways) for each in hosts]
    with namespace_hosts.firewall(hosts[0], "40000-40002"):
        async with came_up(namespace_hosts.config, *lines) as found:
            assert [each.reason for each in found.values()] == ["", ""]


@pytest.mark.parametrize(
    ("options", "reason", "hint"),
    [
        (
            {"ports": (40000, 40001)},
            "worker-ports=40000-40001 has too few ports for its 2 workers",
            "fewer workers (workers=",
        ),
        (
            {"listen": "ib0"},
            "its workers cannot listen on ib0: it has no interface ib0, but lo, eth0",
            "interface=NAME",
        ),
        (
            {"listen": "10.99.0.2"},
            "its workers cannot listen on 10.99.0.2: Cannot assign requested address",
            "listen=ADDRESS",
        ),
    ],
    ids=["ports", "interface", "address"],
)
async def test_where_workers_cannot_listen_is_named_with_the_option_that_sets_it(
    namespace_hosts: Namespaces, options: dict[str, Any], reason: str, hint: str
) -> None:
    host = namespace_hosts.hosts[0]
    line = Host(host.name, gpus=(), workers=2, **options)
    async with came_up(namespace_hosts.config, line) as found:
        assert found[host.name].reason == reason
        assert hint in found[host.name].hint


async def doctor_of(config: Path, *lines: Host) -> list[Finding]:
    """Return what doctor finds that is not good, and what it finds of tunnels."""
    settings = FleetSettings("test", ssh_config=str(config))
    found = await diagnose(lines, settings, nobody)
    return [each for each in found if each.verdict is not Verdict.GOOD or each.check == "tunnel"]


async def test_doctor_finds_a_way_between_hosts_that_is_closed(namespace_hosts: Namespaces) -> None:
    first, second, _ = namespace_hosts.hosts
    with no_route(namespace_hosts, first, second):
        found = await doctor_of(
            namespace_hosts.config, Host(first.name, gpus=()), Host(second.name, gpus=())
        )
    (bad,) = [each for each in found if each.verdict is Verdict.BAD]
    assert bad.check == "workers" and bad.text.startswith(ways_between(first, second)), bad


@pytest.mark.slow
async def test_doctor_finds_a_firewall_and_whether_workers_go_through_ssh(
    namespace_hosts: Namespaces,
) -> None:
    shut, other, _ = namespace_hosts.hosts
    lines = [Host(each.name, gpus=()) for each in (shut, other)]
    with namespace_hosts.firewall(shut, out=False):
        alone = await doctor_of(namespace_hosts.config, lines[0])
        both = await doctor_of(namespace_hosts.config, *lines)
        not_wanted = await doctor_of(namespace_hosts.config, replace(lines[0], tunnel=False))
    assert [(each.check, each.verdict) for each in alone] == [("tunnel", Verdict.GOOD)]
    assert alone[0].text.startswith("its workers go through its SSH connection: ")
    assert ": no answer within" in alone[0].text
    assert [each.text for each in both if each.verdict is Verdict.BAD] == [
        f"{shut.name} is reached by SSH only, so its workers and those of {other.name} cannot "
        "reach each other"
    ]
    assert [(each.check, each.verdict) for each in not_wanted] == [("workers", Verdict.BAD)]


def listeners(hosts: Namespaces, host: SshHost) -> str:
    command = ["ip", "netns", "exec", hosts.namespace(host), "ss", "-Hltn"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.slow
async def test_workers_go_through_the_connection_that_an_ssh_of_the_user_holds(
    namespace_hosts: Namespaces, tmp_path: Path
) -> None:
    host, path = namespace_hosts.hosts[0], tmp_path / "master"
    master = ["ssh", "-F", namespace_hosts.config, "-S", path]
    subprocess.run([*master, "-f", "-N", "-M", host.name], check=True, stderr=subprocess.DEVNULL)
    config = tmp_path / "ssh_config"
    section = namespace_hosts.section(host).replace(host.address, "nowhere.invalid")
    config.write_text(f"{section}  ControlPath {path}\n")
    try:
        with namespace_hosts.firewall(host, out=False):
            # An ssh for each port would take longer than the stage may.
            line = Host(host.name, gpus=(), workers=1, tunnel=True, ports=(9000, 9499))
            async with came_up(config, line) as found:
                assert found[host.name].reason == ""
                assert found[host.name].state is HostState.READY
                assert "127.0.0.1" in listeners(namespace_hosts, host)
            assert "127.0.0.1" not in listeners(namespace_hosts, host)
            assert (await doctor_of(config, line))[-1].check == "tunnel"
            assert "127.0.0.1" not in listeners(namespace_hosts, host)
    finally:
        subprocess.run([*master, "-O", "exit", host.name], stderr=subprocess.DEVNULL)


@pytest.mark.slow
async def test_workers_go_through_a_jump_host(namespace_hosts: Namespaces, tmp_path: Path) -> None:
    host, jump, _ = namespace_hosts.hosts
    config = tmp_path / "ssh_config"
    config.write_text(
        f"{namespace_hosts.section(jump)}{namespace_hosts.section(host)}  ProxyJump {jump.name}\n"
    )
    with namespace_hosts.firewall(host, out=False):
        async with came_up(config, Host(host.name, gpus=())) as found:
            assert found[host.name].reason == ""
            (warning,) = found[host.name].warnings
            assert "its workers go through its SSH connection: " in warning


@pytest.mark.slow
async def test_an_sshd_that_forwards_nothing_is_named_with_the_setting(
    namespace_hosts: Namespaces, tmp_path: Path
) -> None:
    host = replace(namespace_hosts.hosts[0], name="stubborn", port=2223)
    config = tmp_path / "ssh_config"
    config.write_text(f"{namespace_hosts.section(host)}  HostKeyAlias [{host.address}]:2222\n")
    inside = ("ip", "netns", "exec", namespace_hosts.namespace(namespace_hosts.hosts[0]))
    namespace_hosts.start_sshd(host, *inside, forwarding="AllowTcpForwarding no\n")
    async with came_up(config, Host(host.name, gpus=(), tunnel=True)) as found:
        assert found[host.name].reason.startswith("tunnel=true; through its SSH connection: ")
        assert "AllowTcpForwarding" in found[host.name].hint


async def test_a_host_that_others_reach_is_not_in_one_cluster_with_one_behind_ssh(
    namespace_hosts: Namespaces,
) -> None:
    first, second, _ = namespace_hosts.hosts
    lines = [Host(first.name, gpus=(), tunnel=True), Host(second.name, gpus=())]
    async with came_up(namespace_hosts.config, *lines) as found:
        (failed,) = [each for each in found.values() if each.state is HostState.FAILED]
    assert failed.reason == (
        f"{first.name} is reached by SSH only, so its workers and those of {second.name} cannot "
        "reach each other"
    )
    assert "* tunnel=true" in failed.hint
