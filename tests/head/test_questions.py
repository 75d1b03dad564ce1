"""Questions of real hosts, as the frontends of a cluster see and answer them."""

from collections.abc import Iterator

import pytest

from gputui.model.snapshot import HostState
from gputui.protocol.frontend import Answer
from tests.clusters import Clusters, LiveCluster
from tests.head.test_hosts import ONE_WORKER
from tests.sshd import SshHosts


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
