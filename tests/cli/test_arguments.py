"""What HOSTS means on the command line."""

import os
import re
from pathlib import Path

import dask
import pytest

from gputui.cli.clusters import head_configuration
from gputui.cli.options import AT_START
from gputui.cli.screen import need_terminal, show_started
from gputui.client.sources import read_hosts
from gputui.errors import UsageError
from gputui.protocol.connection_file import ConnectionFile, NameLock, digest_of


def test_without_hosts_it_is_this_machine() -> None:
    assert read_hosts(None).name == "local"
    assert read_hosts(None).hosts[0].is_local


def test_a_file_gives_the_cluster_its_name(tmp_path: Path) -> None:
    path = tmp_path / "lab.txt"
    path.write_bytes("gpu-a\r\nrechner-süd\r\n".encode())
    given = read_hosts(str(path))
    assert (given.name, given.source) == ("lab", str(path))
    assert [host.name for host in given.hosts] == ["gpu-a", "rechner-süd"]


def test_text_has_semicolons_for_lines_and_commas_for_names() -> None:
    given = read_hosts("a,b gpus=0; c")
    assert [(host.name, host.gpus) for host in given.hosts] == [
        ("a", ("0",)),
        ("b", ("0",)),
        ("c", None),
    ]


def test_semicolons_and_slashes_in_quotes_belong_to_the_value() -> None:
    given = read_hosts('a setup="source /etc/profile; export A=1"; b')
    assert [(host.name, host.setup) for host in given.hosts] == [
        ("a", "source /etc/profile; export A=1"),
        ("b", ""),
    ]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("./mine.py:PRESET", "to run it: gputui HOSTS --run ./mine.py:PRESET"),
        (5, "for a number of workers write workers=5"),
        ([0, 1], "0 is no line of a hosts file"),
        ("http://gpu-a", "is the address of a page: write the host, gpu-a"),
        (None.__class__, "write the path of a hosts file"),
    ],
)
def test_what_is_no_hosts_is_refused_with_what_to_write(given: object, says: str) -> None:
    with pytest.raises(UsageError, match=re.escape(says)):
        read_hosts(given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "given", [{"metrics": 0}, {"gpus": 2}, {"memory_free": "70GiB"}, {"gpus_per_host": 2}]
)
def test_what_is_for_a_start_is_refused_where_the_cluster_runs(
    given: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    hosts = read_hosts("gpu-a")
    options = {**dict.fromkeys(AT_START), "memory_free": "", "name": "lab", **given}
    lock = NameLock("lab", "id")
    try:
        lock.publish(
            ConnectionFile(
                "lab", "id", os.getpid(), 1.5, "/x.sock", "0.1.0", hosts_source=hosts.source
            )
        )
        with pytest.raises(
            UsageError, match=r"lab runs already, and --.* --memory-free, --gpus-per"
        ):
            show_started(hosts, options)
    finally:
        lock.release()


def test_hosts_in_the_command_are_not_taken_for_those_of_a_cluster_of_the_same_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    there, other = read_hosts("gpu-a"), read_hosts("gpu-b")
    digest = digest_of(there.text)
    lock = NameLock(there.name, "id")
    try:
        lock.publish(
            ConnectionFile(
                there.name, "id", os.getpid(), 1.5, "/x.sock", "0.1.0", hosts_digest=digest
            )
        )
        options = {**dict.fromkeys(AT_START), "name": None, "theme": "none", "hosts": "gpu-b"}
        with pytest.raises(UsageError, match="a cluster called local runs on other hosts"):
            show_started(other, options)
        for shown in ({"hosts": " gpu-a"}, {"hosts": None, "name": "local"}):
            read = read_hosts(shown["hosts"])
            with pytest.raises(UsageError, match="theme"):  # it would be shown
                show_started(read, {**options, **shown})
    finally:
        lock.release()


def test_the_setting_of_idle_time_holds_for_a_screen_too() -> None:
    hosts = read_hosts(None)

    def idle_s(given: float | None = None) -> float | None:
        options = {**dict.fromkeys(AT_START), "name": None, "hosts": None, "idle_timeout": given}
        made = head_configuration(hosts, options, stays=True, idle_timeout_s=3600.0)
        return made.idle_timeout_s

    assert idle_s() == 3600.0
    with dask.config.set({"gputui.idle-timeout": 60}):
        assert idle_s() == 60.0
        assert idle_s(5.0) == 5.0


def test_a_screen_whose_stderr_is_not_the_terminal_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ours, theirs = os.openpty()
    monkeypatch.setenv("TERM", "xterm")
    with os.fdopen(ours), os.fdopen(theirs, "w") as terminal, (tmp_path / "err").open("w") as err:
        for stream in ("stdin", "stdout"):
            monkeypatch.setattr(f"sys.{stream}", terminal)
        monkeypatch.setattr("sys.stderr", terminal)
        need_terminal("gputui up")
        monkeypatch.setattr("sys.stderr", err)
        with pytest.raises(UsageError, match="drawn on stderr"):
            need_terminal("gputui up")
