"""Hosts whose agent is the stand-in, reached for real."""

import asyncio
import contextlib
import getpass
import json
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

import gputui
from gputui.fleet.deploy import remote
from gputui.fleet.deploy.start_agent import AgentOpener
from gputui.fleet.host import FleetHost
from gputui.fleet.reachability import Ways
from gputui.fleet.stages import FleetSettings, Question, Stages
from gputui.model.hosts import Host
from gputui.model.snapshot import HostState
from tests.sshd import (
    SSHD,
    AsyncsshServer,
    SshHost,
    SshHosts,
    free_port,
    unavailable,
    wait_for_ssh,
)

BOUND_S = 20


async def nobody(question: Question) -> None:
    """Answer no question."""


@dataclass
class Listener:
    """Keeps all that a host tells, and answers what it asks."""

    states: list[HostState] = field(default_factory=list)
    messages: list[object] = field(default_factory=list)
    questions: list[Question] = field(default_factory=list)
    answers: list[str | None] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def changed_to(self, host: FleetHost, _another_state: bool) -> None:
        if not self.states or self.states[-1] is not host.state:
            self.states.append(host.state)
        self.changed.set()

    def received(self, host: FleetHost, message: object) -> None:
        self.messages.append(message)
        self.changed.set()

    async def ask(self, host: str, question: Question) -> str | None:
        self.questions.append(question)
        return self.answers.pop(0) if self.answers else None

    async def until(self, condition: Callable[[], bool], bound_s: float = BOUND_S) -> None:
        async with asyncio.timeout(bound_s):
            while not condition():
                self.changed.clear()
                await self.changed.wait()


@dataclass
class Reaching:
    """Reaches hosts with the stand-in as their agent."""

    shared_pack: remote.Pack
    settings: FleetSettings = field(
        default_factory=lambda: FleetSettings("test", telemetry_interval_s=0.1, stage_timeout_s=5)
    )
    port: int = 8786
    """The scheduler's."""
    hosts: list[FleetHost] = field(default_factory=list)
    listeners: dict[str, Listener] = field(default_factory=dict)
    scheduler_ports: dict[str, asyncio.Future[int]] = field(default_factory=dict)
    shared: AgentOpener | None = None

    def configure(self, **changes: object) -> None:
        self.settings = replace(self.settings, **changes)

    def hurry(self, monkeypatch: pytest.MonkeyPatch, late: str, bound_s: float) -> None:
        """End the one step whose message says `late` after bound_s; no other has to be quick."""
        enter = Stages.enter

        def enter_hurried(
            stages: Stages, state: HostState, message: str, *args: str, **bound: float | None
        ) -> AbstractAsyncContextManager[None]:
            if late in message:
                bound["bound_s"] = bound_s
            return enter(stages, state, message, *args, **bound)

        monkeypatch.setattr(Stages, "enter", enter_hurried)

    def begin(self, host: Host, *, scheduler: bool = True, **wishes: object) -> FleetHost:
        """Start to reach a host whose agent does as `wishes` say."""
        self.shared = self.shared or AgentOpener(self.settings, lambda: self.shared_pack)
        env = (("STANDIN", json.dumps(wishes)),)
        listener = Listener()
        port: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.scheduler_ports[host.name] = port
        if scheduler:
            port.set_result(self.port)
        wanted = asyncio.Event()
        wanted.set()
        fleet_host = FleetHost(
            replace(host, env=env),
            self.settings,
            self.shared,
            {},
            port,
            wanted,
            changed=listener.changed_to,
            received=listener.received,
            find_ways=Ways({}, "").find,
            ask=lambda host, question: listener.ask(host, question),
        )
        self.hosts.append(fleet_host)
        self.listeners[host.name] = listener
        return fleet_host

    def begin_local(self, **wishes: object) -> FleetHost:
        return self.begin(LOCAL, **wishes)

    async def end(self, host: FleetHost, bound_s: float = BOUND_S) -> FleetHost:
        """Wait until a host has come to the end of its start."""
        await self.listeners[host.name].until(lambda: host.state.final, bound_s)
        return host

    async def all_over(
        self, hosts: SshHosts, *names: str, answers: Sequence[str] = (), **options: object
    ) -> list[FleetHost]:
        """Reach hosts over SSH at once, without their GPUs, to the ends of their starts."""
        self.configure(ssh_config=str(hosts.config))
        begun = [self.begin(Host(name, gpus=(), **options)) for name in names]
        for name in names:
            self.listeners[name].answers += answers
        return await asyncio.gather(*map(self.end, begun))

    async def over(self, hosts: SshHosts, name: str = "ssh1", **options: object) -> FleetHost:
        """Reach one of these hosts so."""
        return (await self.all_over(hosts, name, **options))[0]

    async def close(self) -> None:
        await asyncio.gather(*(host.stop(0.5) for host in self.hosts))
        if self.shared:
            await self.shared.close()


LOCAL = Host("localhost", gpus=(), python=sys.executable)


@contextlib.contextmanager
def own_sshd(folder: SshHosts, settings: str, *names: str) -> Iterator[SshHost]:
    """Run an sshd with some settings, known by these names."""
    if SSHD is None:
        unavailable("there is no sshd")
    host = SshHost(names[0], "127.0.0.1", free_port(), getpass.getuser())
    folder.start_sshd(host, settings=settings)
    try:
        wait_for_ssh(folder, host)
        folder.describe(*(replace(host, name=name) for name in names))
        yield host
    finally:
        folder.stop()


@pytest.fixture(scope="session")
def standin_pack(tmp_path_factory: pytest.TempPathFactory) -> remote.Pack:
    root = Path(gputui.__file__).parent
    found = sorted((*root.glob("model/*.py"), *root.glob("protocol/*.py"), root / "errors.py"))
    names = tuple(str(path.relative_to(root)) for path in found)
    empty = tmp_path_factory.mktemp("pack") / "empty.py"
    empty.touch()
    sources = [(f"gputui/{name}", root / name) for name in names]
    sources += [("gputui/__init__.py", empty), ("gputui/agent/__init__.py", empty)]
    sources += [("gputui/agent/__main__.py", Path(__file__).with_name("standin.py"))]
    path = empty.with_name("standin.pyz")
    path.write_bytes(remote.build(tuple(sources)))
    return remote.Pack(path.read_bytes(), path)


@pytest.fixture
async def reaching(standin_pack: remote.Pack) -> AsyncIterator[Reaching]:
    reaching = Reaching(standin_pack)
    yield reaching
    await reaching.close()


class Reach:
    """Starts asyncssh's server with these ways as `ssh1`, and reaches it to its end."""

    def __init__(self, reaching: Reaching, start: Callable[..., AsyncsshServer], hosts: SshHosts):
        self.folder = hosts.folder
        self._reaching, self._start, self._hosts = reaching, start, hosts

    async def __call__(
        self,
        answers: Sequence[str] = (),
        python: str | None = None,
        setup: str = "",
        **ways: object,
    ) -> FleetHost:
        self._start("ssh1", **ways)
        options = {"python": python, "setup": setup}
        return await self._reaching.over(self._hosts, answers=answers, **options)


@pytest.fixture
def reach(
    reaching: Reaching, start_asyncssh: Callable[..., AsyncsshServer], ssh_folder: SshHosts
) -> Reach:
    return Reach(reaching, start_asyncssh, ssh_folder)
