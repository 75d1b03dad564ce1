"""Fixtures that all tests may use."""

import pytest

from tests.sshd import (  # noqa: F401
    asyncssh_hosts,
    namespace_hosts,
    openssh_hosts,
    ssh_folder,
    start_asyncssh,
)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Start what checks the house rules, if it is asked for: it runs beside the other tests."""
    if not session.config.option.collectonly:
        for item in session.items:
            if isinstance(item, pytest.Function) and item.path.name == "test_house.py":
                item.module.begin(item.callspec.params["rule"])
