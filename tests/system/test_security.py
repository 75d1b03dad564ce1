"""Who is kept out of a cluster of this machine, and what nobody else may read."""

import asyncio
import json
import resource
import socket
import ssl
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from distributed import Client
from distributed.security import Security

from gputui.client.head_connection import HeadConnection
from gputui.engine import tls
from gputui.process.lifetime import NO_DUMP
from gputui.protocol.frontend import Attached
from tests.processes import processes_of
from tests.sshd import Namespaces
from tests.system.conftest import Command, a_command
from tests.system.parts import listening, parts_of

HOST = "localhost gpus=none workers=2 nthreads=1 memory=512MiB"
REQUEST = b"GET / HTTP/1.0\r\nHost: localhost\r\n\r\n"
ANSWER_S = 1.0
REFUSED_S = 3


@dataclass(frozen=True, slots=True)
class Live:
    """A cluster that runs, and what its head tells those who may attach."""

    command: Command
    attached: Attached

    @property
    def pids(self) -> list[int]:
        return processes_of(self.attached.cluster_id)

    def listening(self) -> set[tuple[str, int]]:
        """Return the addresses and ports at which its processes listen."""
        return {place for pid in self.pids for place in listening(pid)}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with a_command(tmp_path_factory.mktemp("security")) as command:
        command.env["SSH_AUTH_SOCK"] = "/nowhere/agent.sock"
        yield started(command, HOST)


@pytest.fixture(scope="module")
def wide_cluster(
    tmp_path_factory: pytest.TempPathFactory, namespace_hosts: Namespaces
) -> Iterator[Live]:
    with a_command(tmp_path_factory.mktemp("wide")) as command:
        command.env |= namespace_hosts.environment
        hosts = namespace_hosts.text("gpus=none workers=1 nthreads=1 memory=512MiB")
        yield started(command, hosts.replace("\n", ";"))


def started(command: Command, hosts: str) -> Live:
    command.ok("up", hosts, "--name", "lab")
    connection_file = json.loads((command.runtime / "gputui" / "lab.json").read_text())
    return Live(command, asyncio.run(attached(connection_file["socket"])))


async def attached(path: str) -> Attached:
    link = await HeadConnection.open(path, frontend="command")
    await link.close()
    return link.attached


@pytest.mark.slow
async def test_its_own_certificate_lets_a_client_in(cluster: Live) -> None:
    own = tls.security(
        cluster.attached.credentials.certificate_pem, cluster.attached.credentials.key_pem
    )
    async with Client(cluster.attached.address, security=own, asynchronous=True) as client:
        assert await client.submit(sum, [1, 2]) == 3


async def test_a_client_without_tls_is_kept_out(cluster: Live) -> None:
    address = cluster.attached.address.replace("tls:", "tcp:")
    with pytest.raises(OSError):
        await Client(address, asynchronous=True, timeout=REFUSED_S)


async def test_a_client_with_a_certificate_of_its_own_is_kept_out(cluster: Live) -> None:
    other = Security.temporary()
    other.tls_ca_file = cluster.attached.credentials.certificate_pem
    with pytest.raises(OSError):
        await Client(cluster.attached.address, security=other, asynchronous=True, timeout=REFUSED_S)


def test_it_listens_on_loopback_only(cluster: Live) -> None:
    listening = cluster.listening()
    assert len(listening) == 3  # the scheduler and two workers
    assert {address for address, _ in listening} == {"127.0.0.1"}


@pytest.mark.parametrize("encrypted", [False, True])
def test_nothing_answers_http(cluster: Live, encrypted: bool) -> None:
    for place in cluster.listening():
        assert b"HTTP" not in answer(place, encrypted)


@pytest.mark.slow
@pytest.mark.parametrize("encrypted", [False, True])
def test_nothing_answers_http_on_a_network(
    wide_cluster: Live, namespace_hosts: Namespaces, encrypted: bool
) -> None:
    here = {"0.0.0.0": namespace_hosts.head_address, "::": namespace_hosts.head_address}
    places = {(here.get(address, address), port) for address, port in wide_cluster.listening()}
    assert {host.address for host in namespace_hosts.hosts} < {address for address, _ in places}
    for place in places:
        assert b"HTTP" not in answer(place, encrypted)


async def test_a_client_without_tls_is_kept_out_on_a_network(
    wide_cluster: Live, namespace_hosts: Namespaces
) -> None:
    port = wide_cluster.attached.address.rpartition(":")[2]
    with pytest.raises(OSError):
        await Client(
            f"tcp://{namespace_hosts.head_address}:{port}", asynchronous=True, timeout=REFUSED_S
        )


def answer(place: tuple[str, int], encrypted: bool) -> bytes:
    """Return what comes back for a request; nothing where it is turned away."""
    try:
        with socket.create_connection(place, ANSWER_S) as connection:
            if not encrypted:
                connection.sendall(REQUEST)
                return connection.recv(4096)
            context = ssl.create_default_context()
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            with context.wrap_socket(connection) as secured:
                secured.sendall(REQUEST)
                return secured.recv(4096)
    except OSError:
        return b""


def test_no_process_shows_a_secret(cluster: Live) -> None:
    for pid in cluster.pids:
        for name in ("cmdline", "environ"):
            assert not tells(Path(f"/proc/{pid}/{name}").read_bytes(), cluster)


def test_no_file_holds_a_secret(cluster: Live) -> None:
    files = [path for path in written(cluster) if path.is_file()]
    assert any(path.suffix == ".log" for path in files)
    assert not [path for path in files if tells(path.read_bytes(), cluster)]


def test_nobody_else_may_enter_its_folders_or_read_its_files(cluster: Live) -> None:
    log = cluster.command.folder / "state" / "gputui" / "log"
    folders = [log, *cluster.command.runtime.iterdir()]
    inside = [*log.iterdir(), *(cluster.command.runtime / "gputui").iterdir()]
    folders += [path for path in inside if path.is_dir()]
    assert {mode(folder) for folder in folders} == {0o700}
    files = [path for path in inside if not path.is_dir()]
    assert {path.suffix for path in files} >= {".log", ".json", ".sock"}
    assert {mode(path) for path in files} == {0o600}


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def written(cluster: Live) -> list[Path]:
    places = (cluster.command.runtime, cluster.command.folder)
    return [path for place in places for path in place.rglob("*")]


def tells(data: bytes, cluster: Live) -> bool:
    """Return whether this has the cluster's key, or any."""
    secret = cluster.attached.credentials.key_pem.splitlines()[1].encode()
    return secret in data or b"PRIVATE KEY" in data


def test_the_way_to_this_users_ssh_keys_is_not_in_the_schedulers_environment(cluster: Live) -> None:
    (scheduler,) = parts_of(cluster.attached.cluster_id)["scheduler"]
    assert b"SSH_AUTH_SOCK" not in Path(f"/proc/{scheduler}/environ").read_bytes()


def test_only_workers_may_leave_a_core_dump(cluster: Live) -> None:
    parts, limit = parts_of(cluster.attached.cluster_id), resource.RLIMIT_CORE
    for part in ("head", "scheduler", "agent", "relay"):
        assert [resource.prlimit(pid, limit)[0] for pid in parts[part]] == [NO_DUMP], part
    for pid in (*parts["forkserver"], *parts["worker"]):
        assert resource.prlimit(pid, limit) == resource.getrlimit(limit)
