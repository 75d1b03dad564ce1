"""`@group` in a hosts file: ClusterShell's, by its real command, and Slurm's allocation."""

from pathlib import Path

import pytest

from gputui.client.sources import read_hosts
from gputui.errors import HostsError
from gputui.groups import members
from gputui.model.hosts import parse_hosts

CONFIGURATION = """[Main]
default: local
[local]
map: sed -n 's/^$GROUP: //p' {groups}
list: sed -n 's/: .*//p' {groups}
"""


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have ClusterShell know some groups."""
    pytest.importorskip("ClusterShell")
    file = tmp_path / "groups"
    file.write_text("gpu: gpu[01-04],old7\nrack-1: gpu[01-02]\n")
    (tmp_path / "groups.conf").write_text(CONFIGURATION.format(groups=file))
    monkeypatch.setenv("CLUSTERSHELL_CFGDIR", str(tmp_path))


@pytest.mark.usefixtures("groups")
def test_a_group_stands_for_its_hosts_on_the_command_line_and_in_a_file(tmp_path: Path) -> None:
    names = [host.name for host in read_hosts("@rack-1,login").hosts]
    assert names == ["gpu01", "gpu02", "login"]
    file = tmp_path / "hosts.txt"
    file.write_text("@gpu!@rack-1 gpus=0,1  # the others\nlogin gpus=none\n")
    hosts = read_hosts(file).hosts
    assert [host.name for host in hosts] == ["gpu03", "gpu04", "old7", "login"]
    assert hosts[0].gpus == ("0", "1") and hosts[0].line == 1


@pytest.mark.usefixtures("groups")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("@gpuu", "HOSTS:1: @gpuu: ClusterShell has no such group, or it is empty (nodeset"),
        ("@none", "(nodeset -l lists @gpu, @rack-1)"),
        ("@no-such:gpu", "has no such group"),
        ("a;@gpu,gpu01", "HOSTS:2: host 'gpu01' is already named on line 2"),
    ],
)
def test_a_group_that_is_not_there_is_refused_with_those_that_are(text: str, said: str) -> None:
    with pytest.raises(HostsError) as caught:
        read_hosts(text)
    assert said in str(caught.value)


def test_without_clustershell_its_package_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    with pytest.raises(HostsError, match="nodeset is not installed here: pip install ClusterShell"):
        read_hosts("@gpu")


def test_an_allocation_stands_for_its_nodes_in_its_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "4711")
    monkeypatch.setenv("SLURM_JOB_NODELIST", "gpu[1-2],big")
    hosts = read_hosts("@slurm gpus=0").hosts
    assert [(host.name, host.slurm_job, host.gpus) for host in hosts] == [
        (name, 4711, ("0",)) for name in ("gpu1", "gpu2", "big")
    ]
    assert not any(host.is_local for host in parse_hosts("localhost slurm=1"))


def test_outside_an_allocation_it_is_refused_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    with pytest.raises(HostsError) as caught:
        read_hosts("@slurm")
    assert str(caught.value) == (
        "HOSTS:1: @slurm: this shell is in no Slurm allocation; "
        "get one first, such as: salloc -N 2 --gpus-per-node=4"
    )


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("a slurm=x", "write the number of a job of yours"),
        ("me@a slurm=1", "srun has no user, port or tunnel: write a alone"),
        ("a:22 slurm=1", "srun has no user, port or tunnel: write a alone"),
        ("a slurm=1 tunnel=true", "srun has no user, port or tunnel: write a alone"),
    ],
)
def test_a_job_of_slurm_is_a_number_and_its_nodes_are_names(line: str, said: str) -> None:
    with pytest.raises(HostsError, match=said):
        parse_hosts(line, members=members)
