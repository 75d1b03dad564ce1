"""Where workers listen, of this machine too, while other hosts come up in any order."""

from dataclasses import dataclass

import pytest

from gputui.fleet.addresses import outward_address, own_end
from gputui.fleet.reachability import Ways
from gputui.model.snapshot import HostState


@dataclass
class Known:
    """What is known of a host."""

    local_address: str = ""
    far_address: str = ""
    listen_address: str = ""
    state: HostState = HostState.READY
    tunnel: None = None


LOCAL = Known("127.0.0.1", "127.0.0.1")
OVER_IPV4 = Known("10.0.0.1", "10.0.0.7")
OVER_IPV6 = Known("fd00::1", "fd00::7")
COMING = Known(state=HostState.CONNECTING)
FAILED = Known(state=HostState.FAILED)


def ways(*hosts: Known) -> Ways:
    return Ways(dict(enumerate(hosts)), "")


def test_a_host_listens_where_it_was_reached_or_at_another_address_of_its_own() -> None:
    assert ways().listen_host(OVER_IPV4) == "10.0.0.7"
    assert ways().listen_host(OVER_IPV6) == "[fd00::7]"
    assert ways().listen_host(Known("10.0.0.1", "10.0.0.7", "10.1.0.7")) == "10.1.0.7"


def test_workers_here_listen_on_loopback_where_all_other_hosts_are_here_or_failed() -> None:
    assert ways(LOCAL, LOCAL, FAILED).listen_host(LOCAL) == "127.0.0.1"


def test_workers_here_wait_for_a_host_that_is_on_its_way() -> None:
    assert ways(LOCAL, COMING).listen_host(LOCAL) == ""
    assert ways(LOCAL, COMING, OVER_IPV4).listen_host(LOCAL) == "10.0.0.1"


@pytest.mark.parametrize(
    "seen", ["0.0.0.0", "::", "224.0.0.1", "255.255.255.255", "192.0.2.7", "?"]
)
def test_a_host_cannot_have_this_machine_listen_on_what_is_no_address_of_it(seen: str) -> None:
    assert own_end(seen) == outward_address()


def test_a_host_behind_a_proxy_reaches_this_machine_at_the_address_that_it_sees() -> None:
    assert own_end(outward_address()) == outward_address()
