"""SSH servers for tests, each giving `SshHosts`: what to reach, with which keys and configuration.

`asyncssh_hosts`: asyncssh's own server, on any machine. `openssh_hosts`: OpenSSH's sshd on
loopback addresses. `namespace_hosts`: three hosts with an address and an sshd of their own, as
network namespaces; needs root. Where the last two cannot be, they skip, or fail if
GPUTUI_REQUIRE_REAL_HOSTS=1.
"""

import asyncio
import contextlib
import getpass
import os
import re
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NoReturn

import asyncssh
import pytest

from tests.processes import descendants

SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
START_S = 10


@dataclass(frozen=True, slots=True)
class SshHost:
    """One host to reach."""

    name: str
    """As in the SSH configuration: `gputui HOSTS` may say just this."""
    address: str
    port: int
    user: str


@dataclass(slots=True)
class SshHosts:
    """Hosts with all that it takes to reach them, under one folder."""

    folder: Path
    hosts: tuple[SshHost, ...] = ()
    head_address: str = "127.0.0.1"
    """Where the hosts reach this machine."""
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def client_key(self) -> Path:
        """The private key that the hosts let in."""
        return self.folder / "client_key"

    @property
    def host_key(self) -> Path:
        """The private key of all the hosts."""
        return self.folder / "host_key"

    @property
    def known_hosts(self) -> Path:
        """A file with the hosts' keys."""
        return self.folder / "known_hosts"

    @property
    def config(self) -> Path:
        """An SSH configuration, for DASK_GPUTUI__SSH__CONFIG or `ssh -F`."""
        return self.folder / "ssh_config"

    @property
    def environment(self) -> dict[str, str]:
        """What a gputui command needs in its environment to reach them by name."""
        return {"DASK_GPUTUI__SSH__CONFIG": str(self.config)}

    def text(self, options: str = "") -> str:
        """Return a hosts file with a line for each."""
        return "".join(f"{host.name} {options}".strip() + "\n" for host in self.hosts)

    def make_keys(self) -> None:
        for path in (self.client_key, self.host_key):
            key = asyncssh.generate_private_key("ssh-ed25519")
            path.touch(0o600)
            key.write_private_key(path)
            key.write_public_key(f"{path}.pub")

    def encrypt_client_key(self, passphrase: str) -> None:
        """Encrypt the client's key, with less work to open it than the seconds that are usual."""
        key = asyncssh.read_private_key(self.client_key)
        key.write_private_key(
            self.client_key, passphrase=passphrase, rounds=1, ignore_few_rounds=True
        )

    def describe(self, *hosts: SshHost) -> None:
        """Write known_hosts and the SSH configuration for these hosts."""
        self.hosts = hosts
        public = Path(f"{self.host_key}.pub").read_text().strip()
        lines = [f"[{host.address}]:{host.port} {public}\n" for host in hosts]
        self.known_hosts.write_text("".join(lines))
        self.config.write_text("".join(self.section(host) for host in hosts))

    def section(self, host: SshHost) -> str:
        """Return the part of an SSH configuration that is about one host."""
        return (
            f"Host {host.name}\n  HostName {host.address}\n  Port {host.port}\n"
            f"  User {host.user}\n  IdentityFile {self.client_key}\n  IdentitiesOnly yes\n"
            f"  UserKnownHostsFile {self.known_hosts}\n"
        )

    def start_sshd(
        self,
        host: SshHost,
        *before: str,
        settings: str = "",
        forwarding: str = "AllowTcpForwarding yes\n",
    ) -> None:
        """Start an sshd for a host, with a command such as `ip netns exec` before it.

        Its sessions have a home of their own, so that no test depends on this user's.
        """
        assert SSHD
        separate_privileges()
        home = self.folder / host.name
        home.mkdir()
        config = home / "sshd_config"
        config.write_text(
            f"ListenAddress {host.address}\nPort {host.port}\nHostKey {self.host_key}\n"
            f"AuthorizedKeysFile {self.client_key}.pub\nPidFile none\nUsePAM no\n"
            "StrictModes no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n"
            f"PermitRootLogin yes\nUseDNS no\n{forwarding}"
            f"SetEnv HOME={home} XDG_CACHE_HOME={home}/cache XDG_RUNTIME_DIR={home}\n{settings}"
        )
        log = (home / "sshd.log").open("wb")
        command = [*before, SSHD, "-D", "-e", "-f", str(config)]
        with log:
            self.processes.append(
                subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            )

    def stop(self) -> None:
        for process in self.processes:
            for pid in (process.pid, *descendants(process.pid)):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            process.wait()


@dataclass
class AsyncsshServer:
    """asyncssh's server in a thread; commands are run for real, by `shell -c`.

    Without `lets_in` it refuses every key; `passwords` are by user.
    """

    hosts: SshHosts
    shell: tuple[str, ...] = ("/bin/sh",)
    banner: str = ""
    lets_in: bool = True
    passwords: dict[str, str] = field(default_factory=dict)
    environ: dict[str, str] = field(default_factory=dict)
    logins: int = 0
    port: int = 0

    def __post_init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def start(self, address: str = "127.0.0.1") -> None:
        self._thread.start()
        self.port = self._call(self._listen(address))

    def stop(self) -> None:
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def drop_connections(self) -> None:
        self._call(self._drop())

    def _call(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(START_S)

    async def _listen(self, address: str) -> int:
        self._connections: list[asyncssh.SSHServerConnection] = []
        self._sessions: set[asyncio.Task] = set()
        self._acceptor = await asyncssh.listen(
            address,
            0,
            server_factory=lambda: _Server(self),
            server_host_keys=[str(self.hosts.host_key)],
            authorized_client_keys=f"{self.hosts.client_key}.pub" if self.lets_in else None,
            process_factory=self._serve,
            encoding=None,
            allow_pty=False,
        )
        return self._acceptor.get_port()

    async def _drop(self) -> None:
        for connection in self._connections:
            connection.abort()

    async def _close(self) -> None:
        self._acceptor.close()
        await self._drop()
        while self._sessions:
            await asyncio.wait(self._sessions)

    async def _serve(self, process: asyncssh.SSHServerProcess) -> None:
        task = asyncio.current_task()
        self._sessions.add(task)
        task.add_done_callback(self._sessions.discard)
        child = await asyncio.create_subprocess_exec(
            *self.shell,
            "-c",
            process.command or "",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
            env={
                **os.environ,
                "XDG_CACHE_HOME": str(self.hosts.folder / "cache"),
                "XDG_RUNTIME_DIR": str(self.hosts.folder),
                **self.environ,
            },
        )
        with contextlib.suppress(OSError):  # the connection may be gone by now
            process.stdout.write(self.banner.encode())
        pumps = [
            asyncio.create_task(_pump(process.stdin, child.stdin)),
            asyncio.create_task(_pump(child.stdout, process.stdout)),
            asyncio.create_task(_pump(child.stderr, process.stderr)),
        ]
        await asyncio.wait(pumps[1:])
        child.stdin.close()
        process.exit(await child.wait())
        pumps[0].cancel()
        await asyncio.wait(pumps)


class _Server(asyncssh.SSHServer):
    def __init__(self, owner: AsyncsshServer) -> None:
        self._owner = owner

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._owner._connections.append(conn)
        self._owner.logins += 1

    def password_auth_supported(self) -> bool:
        return bool(self._owner.passwords)

    def validate_password(self, username: str, password: str) -> bool:
        return self._owner.passwords.get(username) == password

    def connection_requested(self, *_: object) -> bool:
        return True

    def unix_connection_requested(self, *_: object) -> bool:
        return True


async def _pump(source, target) -> None:
    with contextlib.suppress(OSError, asyncssh.Error):
        while chunk := await source.read(65536):
            target.write(chunk)
            await target.drain()
    with contextlib.suppress(OSError, asyncssh.Error, AttributeError):
        target.close() if isinstance(target, asyncio.StreamWriter) else None


@pytest.fixture
def ssh_folder(tmp_path: Path) -> SshHosts:
    """Keys and an empty folder, for a test that starts its own servers."""
    hosts = SshHosts(tmp_path)
    hosts.make_keys()
    return hosts


@pytest.fixture
def start_asyncssh(ssh_folder: SshHosts) -> Iterator[Callable[..., AsyncsshServer]]:
    """A function that starts an asyncssh server as a host of a name, with its ways."""
    servers: list[AsyncsshServer] = []

    def start(name: str = "ssh1", **ways: object) -> AsyncsshServer:
        server = AsyncsshServer(ssh_folder, **ways)
        servers.append(server)
        server.start()
        added = SshHost(name, "127.0.0.1", server.port, getpass.getuser())
        ssh_folder.describe(*ssh_folder.hosts, added)
        return server

    yield start
    for server in servers:
        server.stop()


@pytest.fixture
def asyncssh_hosts(start_asyncssh: Callable[..., AsyncsshServer], ssh_folder: SshHosts) -> SshHosts:
    """Two hosts of asyncssh's own server."""
    start_asyncssh("ssh1")
    start_asyncssh("ssh2")
    return ssh_folder


@pytest.fixture(scope="session")
def openssh_hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshHosts]:
    """Four hosts of OpenSSH's sshd, on loopback addresses of their own."""
    if SSHD is None:
        unavailable("there is no sshd")
    with running_sshd(tmp_path_factory.mktemp("openssh"), 4) as hosts:
        yield hosts


@pytest.fixture(scope="session")
def namespace_hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator["Namespaces"]:
    """Three hosts as network namespaces, with addresses of their own."""
    if SSHD is None or shutil.which("ip") is None:
        unavailable("there is no sshd, or no ip")
    if os.geteuid() != 0:
        unavailable("network namespaces need root")
    with running_namespaces(tmp_path_factory.mktemp("namespaces"), 3) as hosts:
        yield hosts


def unavailable(why: str) -> NoReturn:
    """Skip a test of real hosts; fail it where they are required."""
    if os.environ.get("GPUTUI_REQUIRE_REAL_HOSTS") == "1":
        pytest.fail(f"real hosts are required, but {why}")
    pytest.skip(why)


@contextlib.contextmanager
def running_sshd(folder: Path, count: int) -> Iterator[SshHosts]:
    """Run `count` sshd on 127.0.0.2 and up; also what the benchmarks use."""
    hosts = SshHosts(folder)
    hosts.make_keys()
    addresses = [f"127.0.0.{2 + number}" for number in range(count)]
    made = [
        SshHost(f"ssh{number}", address, free_port(address), getpass.getuser())
        for number, address in enumerate(addresses, 1)
    ]
    hosts.describe(*made)
    try:
        for host in made:
            hosts.start_sshd(host)
        for host in made:
            wait_for_ssh(hosts, host)
        yield hosts
    finally:
        hosts.stop()


class Namespaces(SshHosts):
    """Hosts as network namespaces on one bridge of this machine."""

    prefix = f"gpt{os.getpid()}"
    network = f"10.{203 + os.getpid() % 50}.{os.getpid() // 50 % 256}"
    network6 = f"fd67:{os.getpid() % 65536:x}::"

    def create(self, count: int) -> None:
        """Make the bridge, and a namespace with an address and an sshd for each host."""
        self.head_address = f"{self.network}.1"
        _ip(f"link add {self.prefix}br type bridge")
        _ip(f"addr add {self.head_address}/24 dev {self.prefix}br")
        _ip(f"addr add {self.network6}1/64 dev {self.prefix}br nodad")
        _ip(f"link set {self.prefix}br up")
        made = [
            SshHost(f"host{number}", f"{self.network}.{10 + number}", 2222, getpass.getuser())
            for number in range(1, count + 1)
        ]
        for host in made:
            self._create_one(host)
        self.describe(*made)
        self.describe6()
        for host in made:
            both = f"ListenAddress {self.address6(host)}\n"
            self.start_sshd(host, "ip", "netns", "exec", self.namespace(host), settings=both)
        for host in made:
            wait_for_ssh(self, host)

    def address6(self, host: SshHost) -> str:
        """Return a host's IPv6 address."""
        return f"{self.network6}{host.address.rpartition('.')[2]}"

    def describe6(self) -> None:
        """Add to the SSH configuration how the hosts are reached by their IPv6 addresses."""
        public = Path(f"{self.host_key}.pub").read_text().strip()
        known = [f"[{self.address6(host)}]:{host.port} {public}\n" for host in self.hosts]
        with self.known_hosts.open("a") as file:
            file.writelines(known)
        with self.config.open("a") as file:
            section = replace(self.hosts[0], name=f"{self.network6}*", address="%h")
            file.write(self.section(section))

    def namespace(self, host: SshHost) -> str:
        """Return the name of a host's namespace, for `ip netns exec`."""
        return f"{self.prefix}-{host.name}"

    def _create_one(self, host: SshHost) -> None:
        space, outside, inside = self.namespace(host), self.device(host), "eth0"
        _ip(f"netns add {space}")
        _ip(f"link add {outside} type veth peer name {inside} netns {space}")
        _ip(f"link set {outside} master {self.prefix}br up")
        _ip(f"-n {space} addr add {host.address}/24 dev {inside}")
        _ip(f"-n {space} addr add {self.address6(host)}/64 dev {inside} nodad")
        _ip(f"-n {space} link set lo up")
        _ip(f"-n {space} link set {inside} up")
        _ip(f"-n {space} route add default via {self.head_address}")

    def device(self, host: SshHost) -> str:
        """Return this machine's end of a host's wire."""
        return f"{self.prefix}{re.sub(r'[^0-9]', '', host.name)}"

    def cut(self, host: SshHost) -> None:
        """Take a host off the network: nothing reaches it, and nothing is refused."""
        _ip(f"link set {self.device(host)} down")

    def mend(self, host: SshHost) -> None:
        """Put a host on the network again."""
        _ip(f"link set {self.device(host)} up")

    def ip(self, host: SshHost, command: str) -> None:
        _ip(f"-n {self.namespace(host)} {command}")

    @contextlib.contextmanager
    def rules(self, host: SshHost, rules: str) -> Iterator[None]:
        """Have these rules of nftables on a host for a while."""
        path = shutil.which("nft", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
        nft = ["ip", "netns", "exec", self.namespace(host), path or unavailable("there is no nft")]
        subprocess.run([*nft, "-f", "-"], input=rules, text=True, check=True)
        try:
            yield
        finally:
            subprocess.run([*nft, "flush", "ruleset"], check=True)

    def firewall(
        self, host: SshHost, *ports: str, out: bool = True
    ) -> contextlib.AbstractContextManager[None]:
        """Let in only the SSH port of a host and these; without `out`, it connects to nothing.

        All else is dropped.
        """
        rules = f"""
        table inet shut {{
          chain input {{
            type filter hook input priority 0; policy drop;
            ct state established,related accept
            iif lo accept
            tcp dport {{ {", ".join((str(host.port), *ports))} }} accept
          }}
          chain output {{
            type filter hook output priority 0; policy {"accept" if out else "drop"};
            ct state established,related accept
            oif lo accept
          }}
        }}
        """
        return self.rules(host, rules)

    def processes_of(self, host: SshHost) -> list[int]:
        return [int(pid) for pid in _ip(f"netns pids {self.namespace(host)}").split()]

    def destroy(self) -> None:
        """End all that runs on the hosts, and take the namespaces and the bridge away."""
        self.stop()
        remove_namespaces(self.prefix)


def remove_namespaces(prefix: str) -> None:
    """Take away the namespaces and the bridge of one run, and all that runs in them."""
    for line in _ip("netns list").splitlines():
        name = line.split()[0]
        if name.startswith(f"{prefix}-"):
            for pid in _ip(f"netns pids {name}").split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            _ip(f"netns del {name}")
    subprocess.run(["ip", "link", "del", f"{prefix}br"], capture_output=True)


def sweep_namespaces() -> None:
    """Take away what runs left that were killed before they could."""
    for prefix, pid in re.findall(r"^(gpt(\d+))-", _ip("netns list"), re.MULTILINE):
        if not Path(f"/proc/{pid}").exists():
            remove_namespaces(prefix)


@contextlib.contextmanager
def running_namespaces(folder: Path, count: int) -> Iterator[Namespaces]:
    """Run `count` hosts as network namespaces."""
    sweep_namespaces()
    hosts = Namespaces(folder)
    hosts.make_keys()
    try:
        hosts.create(count)
        yield hosts
    finally:
        hosts.destroy()


def _ip(arguments: str) -> str:
    done = subprocess.run(["ip", *arguments.split()], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"ip {arguments}: {done.stderr.strip()}")
    return done.stdout


def free_port(address: str = "127.0.0.1") -> int:
    with socket.create_server((address, 0)) as server:
        port: int = server.getsockname()[1]
        return port


def separate_privileges() -> None:
    """Make the folder that an sshd of root wants: its package leaves that to the init system."""
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)


def wait_for_ssh(hosts: SshHosts, host: SshHost) -> None:
    ends_at = time.monotonic() + START_S
    while time.monotonic() < ends_at:
        with (
            contextlib.suppress(OSError),
            socket.create_connection((host.address, host.port), 1) as connection,
        ):
            if connection.recv(4) == b"SSH-":
                return
        time.sleep(0.02)
    log = (hosts.folder / host.name / "sshd.log").read_text()
    raise RuntimeError(f"sshd of {host.name} does not answer: {log}")
