"""A head with hosts over SSH: several addresses, hosts that fail, hosts that are lost."""

import os
import signal
from collections import Counter

import pytest

from gputui.errors import HeadError
from gputui.protocol.frontend import AwaitWorkers, ChangeHosts, RetryHosts, Scale, Settled
from gputui.snapshot import HostState
from tests.clusters import Clusters, LiveCluster
from tests.head.test_head import client_of
from tests.processes import parent_of
from tests.sshd import Namespaces, SshHost, SshHosts

ONE_WORKER = "gpus=none workers=1 nthreads=1 memory=512MiB"


def host_states(cluster: LiveCluster) -> dict[str, HostState]:
    return {host.name: host.state for host in cluster.snapshot.hosts}


@pytest.mark.slow
async def test_hosts_reached_over_ipv4_and_ipv6_exchange_results_over_one_of_them(
    clusters: Clusters, namespace_hosts: Namespaces
) -> None:
    first, *others = namespace_hosts.hosts
    six = [over_ipv6(namespace_hosts, host) for host in others]
    text = "\n".join([f"localhost {ONE_WORKER}", f"{first.name} {ONE_WORKER}", *six])
    cluster = await clusters.start(text, ssh_config=str(namespace_hosts.config))
    await cluster.up(4)
    listening = [worker.address for worker in cluster.workers.values()]
    assert not [address for address in listening if "127.0.0.1" in address]
    assert len({"[fd67:" in address for address in listening}) == 1
    await exchange(cluster, listening)


async def exchange(cluster: LiveCluster, listening: list[str]) -> None:
    """Have every worker fetch a result from each."""
    async with client_of(cluster) as client:
        parts = [client.submit(bytes, 1000, workers=each, pure=False) for each in listening]
        for address in listening:
            joined = await client.submit(b"".join, parts, workers=address, pure=False)
            assert len(joined) == 1000 * len(listening)


def over_ipv6(hosts: Namespaces, host: SshHost) -> str:
    return f"[{hosts.address6(host)}]:{host.port} {ONE_WORKER}"


@pytest.mark.slow
async def test_a_host_reached_over_ipv4_listens_on_ipv6_where_others_have_nothing_else(
    clusters: Clusters, namespace_hosts: Namespaces
) -> None:
    first, second, _ = namespace_hosts.hosts
    with namespace_hosts.without_ipv4(second):
        text = over_ipv6(namespace_hosts, second)
        cluster = await clusters.start(text, ssh_config=str(namespace_hosts.config))
        await cluster.up(1)
        await cluster.request(ChangeHosts(0, f"{first.name} {ONE_WORKER}"))
        await cluster.up(2)
        listening = [worker.address for worker in cluster.workers.values()]
        assert f"tls://[{namespace_hosts.address6(first)}]" in {
            address.rpartition(":")[0] for address in listening
        }
        await exchange(cluster, listening)


async def test_a_host_that_cannot_reach_another_hosts_workers_is_refused_with_both_addresses(
    clusters: Clusters, namespace_hosts: Namespaces
) -> None:
    first, second, _ = namespace_hosts.hosts
    text = f"{first.name} {ONE_WORKER}"
    cluster = await clusters.start(text, ssh_config=str(namespace_hosts.config))
    await cluster.up(1)
    with namespace_hosts.without_ipv4(second):
        await cluster.request(ChangeHosts(0, over_ipv6(namespace_hosts, second)))
        await cluster.until(lambda: HostState.FAILED in host_states(cluster).values())
    (failed,) = [host for host in cluster.snapshot.hosts if host.state is HostState.FAILED]
    here, there = namespace_hosts.address6(second), first.address
    assert f"{here} cannot reach the workers of {first.name} at {there}: Network" in failed.reason
    assert "AddressFamily" in failed.hint


@pytest.mark.slow
async def test_a_host_that_cannot_reach_the_workers_here_is_refused_with_the_reason(
    clusters: Clusters, namespace_hosts: Namespaces
) -> None:
    first, second, _ = namespace_hosts.hosts
    text = f"localhost {ONE_WORKER}\n{first.name} {ONE_WORKER}"
    cluster = await clusters.start(text, ssh_config=str(namespace_hosts.config))
    await cluster.up(2)
    with namespace_hosts.without_ipv4(second):
        await cluster.request(ChangeHosts(0, over_ipv6(namespace_hosts, second)))
        await cluster.until(lambda: HostState.FAILED in host_states(cluster).values())
    (failed,) = [host for host in cluster.snapshot.hosts if host.state is HostState.FAILED]
    here = namespace_hosts.head_address
    assert f"cannot reach this machine's workers at {here}: Network is unreach" in failed.reason
    assert "AddressFamily" in failed.hint


@pytest.mark.slow
async def test_a_host_that_fails_does_not_stop_the_others(
    clusters: Clusters, openssh_hosts: SshHosts
) -> None:
    hosts = openssh_hosts.text(ONE_WORKER).splitlines()[:2]
    text = "\n".join([*hosts, f"nowhere.invalid {ONE_WORKER}"])
    cluster = await clusters.start(text, ssh_config=str(openssh_hosts.config))
    settled = await cluster.request(AwaitWorkers(0))
    assert isinstance(settled, Settled)
    assert len(settled.workers) == 2
    assert [host.name for host in settled.failed_hosts] == ["nowhere.invalid"]


@pytest.mark.slow
async def test_hosts_are_added_and_removed_while_it_runs(
    clusters: Clusters, openssh_hosts: SshHosts
) -> None:
    first, second, *_ = openssh_hosts.text(ONE_WORKER).splitlines()
    cluster = await clusters.start(first, ssh_config=str(openssh_hosts.config))
    await cluster.up(1)
    async with client_of(cluster) as client:
        future = client.submit(sum, [1, 2])
        assert await future == 3
        await cluster.request(ChangeHosts(0, second))
        await cluster.until(lambda: cluster.snapshot.workers_up == 2)
        await cluster.request(ChangeHosts(0, remove=(first.split()[0],)))
        await cluster.until(lambda: list(host_states(cluster)) == [second.split()[0]])
        assert await future == 3
        assert list(cluster.workers) == [f"{second.split()[0]}:cpu0"]


@pytest.mark.slow
async def test_replacing_the_hosts_keeps_those_in_both(
    clusters: Clusters, openssh_hosts: SshHosts
) -> None:
    one, two, three, _ = openssh_hosts.text(ONE_WORKER).splitlines()
    cluster = await clusters.start(f"{one}\n{two}", ssh_config=str(openssh_hosts.config))
    await cluster.up(2)
    kept = cluster.workers[f"{two.split()[0]}:cpu0"].pid
    await cluster.request(ChangeHosts(0, f"{two}\n{three}", replace=True))
    await cluster.until(
        lambda: len(host_states(cluster)) == 2 and one.split()[0] not in host_states(cluster)
    )
    await cluster.until(lambda: cluster.snapshot.workers_up == 2)
    assert cluster.workers[f"{two.split()[0]}:cpu0"].pid == kept


@pytest.mark.slow
async def test_workers_are_spread_over_the_hosts(
    clusters: Clusters, openssh_hosts: SshHosts
) -> None:
    lines = openssh_hosts.text("gpus=none workers=2 nthreads=1 memory=256MiB").splitlines()
    text = "\n".join(lines[:2])
    cluster = await clusters.start(text, ssh_config=str(openssh_hosts.config), workers=0)
    await cluster.until(
        lambda: cluster.snapshot and set(host_states(cluster).values()) == {HostState.READY}
    )
    await cluster.request(Scale(0, 2))
    await cluster.up(2)
    assert set(Counter(worker.host for worker in cluster.workers.values()).values()) == {1}


@pytest.mark.slow
async def test_a_killed_agent_is_met_again_and_its_workers_replaced(
    clusters: Clusters, openssh_hosts: SshHosts
) -> None:
    first, second, *_ = openssh_hosts.text(ONE_WORKER).splitlines()
    cluster = await clusters.start(f"{first}\n{second}", ssh_config=str(openssh_hosts.config))
    await cluster.up(2)
    worker = cluster.workers[f"{first.split()[0]}:cpu0"]
    os.kill(parent_of(parent_of(worker.pid)), signal.SIGKILL)
    await cluster.until(lambda: cluster.snapshot.workers_up == 1)
    await cluster.until(lambda: cluster.snapshot.workers_up == 2)
    assert cluster.workers[worker.name].pid != worker.pid


@pytest.mark.slow
async def test_a_cut_network_loses_the_worker_and_gets_it_back(
    clusters: Clusters, namespace_hosts: Namespaces
) -> None:
    text = "\n".join(namespace_hosts.text(ONE_WORKER).splitlines()[:2])
    cluster = await clusters.start(text, ssh_config=str(namespace_hosts.config), lease_s=2.0)
    await cluster.up(2)
    host = namespace_hosts.hosts[0]
    namespace_hosts.cut(host)
    try:
        await cluster.until(lambda: f"{host.name}:cpu0" not in cluster.workers)
        assert cluster.snapshot.workers_up == 1
    finally:
        namespace_hosts.mend(host)
    await cluster.until(lambda: cluster.snapshot.workers_up == 2)


async def test_a_refused_host_can_be_tried_again(
    clusters: Clusters, openssh_hosts: SshHosts
) -> None:
    known = openssh_hosts.known_hosts.read_text()
    first = openssh_hosts.text(ONE_WORKER).splitlines()[0]
    openssh_hosts.known_hosts.write_text("")
    try:
        cluster = await clusters.start(
            first, ssh_config=str(openssh_hosts.config), frontend="command"
        )
        await cluster.until(lambda: cluster.snapshot and cluster.snapshot.hosts[0].state.final)
        assert (
            "fingerprint" in cluster.snapshot.hosts[0].reason.lower()
            or "key" in cluster.snapshot.hosts[0].reason
        )
    finally:
        openssh_hosts.known_hosts.write_text(known)
    await cluster.request(RetryHosts(0))
    await cluster.up(1)


async def test_an_unknown_host_is_refused_by_name(clusters: Clusters) -> None:
    cluster = await clusters.start()
    with pytest.raises(HeadError, match="no host elsewhere"):
        await cluster.request(Scale(0, 1, host="elsewhere"))
