"""Fixtures that all tests may use."""

from tests.sshd import (  # noqa: F401
    asyncssh_hosts,
    namespace_hosts,
    openssh_hosts,
    ssh_folder,
    start_asyncssh,
)
