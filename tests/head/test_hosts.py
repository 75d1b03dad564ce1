"""A head with hosts over SSH: several addresses, hosts that fail, ask, or are lost."""

import asyncio
from collections.abc import Iterator

import psutil
import pytest

from gputui.errors import HeadError
from gputui.model.snapshot import HostState
from gputui.protocol.frontend import Answer, ChangeHosts, Done
from tests.clusters import Clusters, LiveCluster
from tests.head.test_head import client_of
from tests.sshd import Namespaces, SshHosts

ONE_WORKER = "gpus=none workers=1 nthreads=1 memory=512MiB"


def two_of(hosts: SshHosts) -> str:
    """Return the lines of the first two hosts."""
    return "\n".join(hosts.text(ONE_WORKER).splitlines()[:2])


@pytest.mark.slow
async def test_hosts_reached_over_ipv4_and_ipv6_exchange_results(
    clusters: Clusters, namespace_hosts: Namespaces
) -> None:
    first, *others = namespace_hosts.hosts
    six = [f"[{namespace_hosts.address6(x)}]:{x.port} {ONE_WORKER}" for x in others]
    text = "\n".join([f"localhost {ONE_WORKER}", f"{first.name} {ONE_WORKER}", *six])
    cluster = await clusters.start(text, ssh_config=str(namespace_hosts.config), up=4)
    listening = [worker.address for worker in cluster.workers.values()]
    assert not [address for address in listening if "127.0.0.1" in address]
    async with client_of(cluster) as client:
        parts = [client.submit(bytes, 1000, workers=each, pure=False) for each in listening]
        for address in listening:
            joined = await client.submit(b"".join, parts, workers=address, pure=False)
            assert len(joined) == 1000 * len(listening)


@pytest.mark.slow
async def test_hosts_are_added_and_removed_while_it_runs(
    clusters: Clusters, openssh_hosts: SshHosts
) -> None:
    first, second, third, _ = openssh_hosts.text(ONE_WORKER).splitlines()
    far = await clusters.start(two_of(openssh_hosts), ssh_config=str(openssh_hosts.config), up=2)
    async with client_of(far) as client:
        future = client.submit(sum, [1, 2])
        assert await future == 3
        await far.request(ChangeHosts(0, third))
        await far.until(lambda: far.snapshot.workers_up == 3)
        await far.request(ChangeHosts(0, remove=(first.split()[0], second.split()[0])))
        await far.until(lambda: [host.name for host in far.snapshot.hosts] == [third.split()[0]])
        assert await future == 3
        assert list(far.workers) == [f"{third.split()[0]}:cpu0"]


async def test_a_host_that_two_add_at_once_is_added_once(clusters: Clusters) -> None:
    cluster = await clusters.start("gpu-a.invalid gpus=none")
    added = (cluster.request(ChangeHosts(0, "gpu-b.invalid gpus=none")) for _ in range(2))
    answers = await asyncio.gather(*added, return_exceptions=True)
    assert [type(each) for each in answers] == [Done, HeadError]
    assert "part of this cluster already: gpu-b.invalid" in str(answers[1])


@pytest.mark.slow
async def test_a_cut_network_loses_the_worker_and_gets_it_back(
    clusters: Clusters, namespace_hosts: Namespaces
) -> None:
    config = str(namespace_hosts.config)
    cluster = await clusters.start(two_of(namespace_hosts), ssh_config=config, lease_s=2.0, up=2)
    host = namespace_hosts.hosts[0]
    namespace_hosts.cut(host)
    try:
        await cluster.until(lambda: f"{host.name}:cpu0" not in cluster.workers)
        assert cluster.snapshot.workers_up == 1
    finally:
        namespace_hosts.mend(host)
    await cluster.until(lambda: cluster.snapshot.workers_up == 2)


async def test_a_head_and_its_scheduler_keep_to_their_cpus_and_workers_do_not(
    clusters: Clusters, openssh_hosts: SshHosts
) -> None:
    text = "ssh1 gpus=none workers=1 nthreads=1 memory=1GiB"
    settings = {"ssh_config": str(openssh_hosts.config), "head_cpus": 1}
    cluster = await clusters.start(text, **settings, up=1)
    head = psutil.Process(cluster.head.pid)
    scheduler = next(each for each in head.children() if "scheduler" in " ".join(each.cmdline()))
    for process in (head, scheduler):
        assert (len(process.cpu_affinity()), process.nice()) == (1, 10)
    (worker,) = (psutil.Process(each.pid) for each in cluster.workers.values())
    assert worker.cpu_affinity() == psutil.Process().cpu_affinity()
    assert worker.nice() == psutil.Process().nice()


async def test_a_head_with_workers_on_its_machine_leaves_them_all_cpus(clusters: Clusters) -> None:
    cluster = await clusters.start(head_cpus=1)
    head = psutil.Process(cluster.head.pid)
    assert head.cpu_affinity() == psutil.Process().cpu_affinity()
    assert head.nice() == psutil.Process().nice()


@pytest.fixture
def strangers(openssh_hosts: SshHosts) -> Iterator[SshHosts]:
    """Hosts whose keys are not known yet."""
    known = openssh_hosts.known_hosts.read_text()
    openssh_hosts.known_hosts.write_text("")
    yield openssh_hosts
    openssh_hosts.known_hosts.write_text(known)


async def asked(clusters: Clusters, hosts: SshHosts, **settings: object) -> LiveCluster:
    """Return a cluster whose one host waits for an answer about its key."""
    first = hosts.text(ONE_WORKER).splitlines()[0]
    cluster = await clusters.start(
        first, ssh_config=str(hosts.config), interactive=True, **settings
    )
    await cluster.until(lambda: cluster.asked and cluster.snapshot)
    return cluster


@pytest.mark.slow
async def test_a_host_waits_beyond_its_bound_while_a_person_is_asked(
    clusters: Clusters, strangers: SshHosts
) -> None:
    cluster = await asked(clusters, strangers, stage_timeout_s=2.0)
    begun_at = cluster.snapshot.taken_at
    await cluster.until(lambda: cluster.snapshot.taken_at > begun_at + 2.5)
    assert cluster.snapshot.hosts[0].state is HostState.AUTHENTICATING


async def test_a_question_reaches_a_frontend_that_attaches_later(
    clusters: Clusters, strangers: SshHosts
) -> None:
    cluster = await asked(clusters, strangers)
    later = await clusters.attach(cluster.head, cluster.socket)
    await later.until(lambda: later.asked)
    later.link.send(Answer(later.asked[0].question, "yes"))
    await cluster.until(lambda: cluster.asked[-1].withdrawn)
