"""Where workers of this machine listen, while other hosts come up in any order."""

import pytest

from gputui.fleet.addresses import HostAddress, outward_address, own_end
from gputui.fleet.reachability import Ways

LOCAL = HostAddress("localhost", "127.0.0.1", "127.0.0.1")
OVER_IPV4 = HostAddress("a", "10.0.0.1", "10.0.0.7")
OVER_IPV6 = HostAddress("b", "fd00::1", "fd00::7")


async def test_an_address_that_was_given_to_workers_here_is_what_later_hosts_are_to_reach() -> None:
    listening = Ways({}, "", lambda: None)
    assert listening.addresses([LOCAL, OVER_IPV4])["localhost"] == "10.0.0.1"
    assert listening.own_address(OVER_IPV6.local_address) == "10.0.0.1"


async def test_workers_here_listen_where_the_first_host_was_to_reach_them() -> None:
    listening = Ways({}, "", lambda: None)
    assert listening.own_address(OVER_IPV6.local_address) == "fd00::1"
    assert listening.addresses([LOCAL, OVER_IPV4, OVER_IPV6])["localhost"] == "[fd00::1]"


@pytest.mark.parametrize(
    "seen", ["0.0.0.0", "::", "224.0.0.1", "255.255.255.255", "192.0.2.7", "?"]
)
def test_a_host_cannot_have_this_machine_listen_on_what_is_no_address_of_it(seen: str) -> None:
    assert own_end(seen) == outward_address()


def test_a_host_behind_a_proxy_reaches_this_machine_at_the_address_that_it_sees() -> None:
    assert own_end(outward_address()) == outward_address()
