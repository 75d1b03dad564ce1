"""Programs on the fleet's hosts: they get free GPUs, a place to meet, and start all or not at all.

What a program says goes to its run, and what its run says to it. The first process that fails ends
the others; a run that goes, or a host that is lost, ends all. A cut connection loses nothing: what
either end may have missed is sent again, and comes to the other once.
"""

import asyncio
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from gputui.errors import ClusterError, HeadError, HostError
from gputui.fleet import checks
from gputui.fleet.addresses import bracketed, is_loopback
from gputui.fleet.checks import Verdict
from gputui.fleet.claiming import Held, HostClaims, hold, pick_free
from gputui.fleet.folders import pack_folder, send_folder
from gputui.fleet.host import ON_THE_WAY, FleetHost
from gputui.fleet.ranks import Share, processes
from gputui.fleet.reachability import ANSWER_S, CONNECT_S, HINT, closed
from gputui.fleet.stages import FleetSettings
from gputui.model.readings import Note, Wanted
from gputui.model.snapshot import HostState
from gputui.process.background import within
from gputui.protocol.agent import Listen, Listening, Reach, Reached, StopListening
from gputui.protocol.programs import (
    HOSTS_COME_UP,
    PIECE_BYTES,
    WINDOW_BYTES,
    BytesTaken,
    EndPrograms,
    FromProgram,
    Place,
    Placed,
    ProgramExited,
    ProgramOutput,
    ProgramStarted,
    ProgramWaits,
    RunPrograms,
    StartProgram,
    ToProgram,
    unpacked,
)

GRACE_S = 5.0
"""How long the others may take to end when one has failed."""
NO_ANSWER = f"its agent did not answer within {ANSWER_S:g} s"
LOOK_S = 0.5
"""How often one who waits for hosts looks whether there are free GPUs meanwhile."""
NOTE_CHARACTERS = 80

Send = Callable[[FromProgram | ProgramWaits], None]


@dataclass(slots=True)
class Process:
    """A process that was sent to its host and is not over."""

    order: StartProgram
    host: str
    agent_pid: int
    """Of the agent that it was sent to."""
    started: ProgramStarted | None = None
    passed_on: int = 0
    """How many bytes of its output went to the run's frontend."""
    taken: int = 0
    """How many of them the frontend has taken."""


@dataclass(slots=True)
class Group:
    """The processes of one run that are not over."""

    send: Send
    """To the run's frontend."""
    starting: "asyncio.Task[object] | None"
    """Waits for GPUs and starts the processes; None once they were started."""
    processes: dict[str, Process] = field(default_factory=dict)
    """By program."""
    claimed: list[Held] = field(default_factory=list)
    sent_to: tuple[FleetHost, ...] = ()
    """The hosts that have its folder."""
    ending: bool = False


class Programs:
    """All programs of one cluster."""

    def __init__(self, hosts: Mapping[str, FleetHost], settings: FleetSettings) -> None:
        self._hosts = hosts
        self._settings = settings
        self._groups: dict[str, Group] = {}
        """By run."""
        self.host_changed = asyncio.Event()
        """Set when a host has got into another state."""

    @property
    def gpus(self) -> dict[str, str]:
        """The run that has each GPU, by UUID."""
        return {
            device.uuid: run
            for run, group in self._groups.items()
            for held in group.claimed
            for device in held.devices
        }

    async def start(self, order: RunPrograms, send: Send) -> Placed:
        """Start a program, once there are GPUs for it; raises ClusterError, HeadError.

        `send` is called with what its processes say. Cancellation gives up the wait.
        """
        if order.run in self._groups:
            raise HeadError(f"{order.run} has a program already")
        group = self._groups[order.run] = Group(send, asyncio.current_task())
        try:
            with tempfile.TemporaryFile() as archive:
                if order.send:
                    await pack_folder(order.send, archive)
                shares = await self._shares(order, group)
                address, port = await self._meeting(shares)
                if order.send:
                    group.sent_to = tuple(self._hosts[share.host] for share in shares)
                    await send_folder(archive, order.run, group.sent_to)
            group.starting = None
            return Placed(order.request, self._launch(order, group, shares, address, port))
        except BaseException:
            if group.processes:  # `heard` forgets it when the last of them has ended
                self.end(order.run, 0.0)
            else:
                self._forget(order.run)
            raise

    def heard(self, host: str, message: FromProgram) -> None:
        """Hand what a program of a host says to its run; the first that fails ends the others.

        Raises HostError for output that nobody can have taken yet.
        """
        run = message.program.rpartition("/")[0]
        group = self._groups.get(run)
        process = group.processes.get(message.program) if group else None
        if group is None or process is None or process.host != host:
            self._end_on(host, (message.program,), 0.0)
            return
        match message:
            case ProgramStarted():
                again, process.started = process.started is not None, message
                if again:
                    return
            case ProgramOutput(start=start) if start < process.passed_on:
                self._hosts[host].send(BytesTaken(message.program, process.taken))
                return
            case ProgramOutput():
                self._pass_on(process, message)
        group.send(message)
        if isinstance(message, ProgramExited):
            del group.processes[message.program]
            self._end_on(host, (message.program,), 0.0)
            if message.status and not group.ending:
                self.end(run)
            if not group.processes:
                self._forget(run)

    def said(self, message: ToProgram) -> None:
        """Hand what a run says to its program."""
        group = self._groups.get(message.program.rpartition("/")[0])
        if group is None or (process := group.processes.get(message.program)) is None:
            return
        if isinstance(message, BytesTaken):
            process.taken = max(process.taken, message.end)
        if host := self._hosts.get(process.host):
            host.send(message)

    def end(self, run: str, grace_s: float = GRACE_S) -> None:
        """End a run's processes: asked first, killed after the grace."""
        if (group := self._groups.get(run)) is None:
            return
        group.ending = True
        if group.starting is not None:
            group.starting.cancel()
        for name in {each.host for each in group.processes.values()}:
            there = tuple(key for key, each in group.processes.items() if each.host == name)
            self._end_on(name, there, grace_s)

    def left(self, send: Send) -> None:
        """End the programs of a frontend that is gone."""
        for run in [run for run, group in self._groups.items() if group.send == send]:
            self.end(run)

    def back(self, host: str) -> None:
        """Say again what a host, or a run about it, may have missed while it was not reached."""
        now = self._hosts[host].agent_pid
        if any(each.agent_pid != now for each in self._on(host)):
            self.lose(host, "its agent ended")
        for process in self._on(host):
            run = process.order.program.rpartition("/")[0]
            group = self._groups[run]
            if group.ending:
                self.end(run)
            elif process.started is not None:
                group.send(process.started)
            else:
                self._hosts[host].send(process.order)

    def lose(self, host: str, why: str) -> None:
        """Handle the loss of a host, whose agent has ended its programs."""
        for process in self._on(host):
            name = process.order.program
            self.heard(host, ProgramExited(name, -9, f"{host} was lost: {why}"))

    def _on(self, host: str) -> list[Process]:
        """Return the processes of a host."""
        groups = self._groups.values()
        return [each for group in groups for each in group.processes.values() if each.host == host]

    def _end_on(self, host: str, programs: tuple[str, ...], grace_s: float) -> None:
        """Have a host end these programs, and forget them."""
        if there := self._hosts.get(host):
            there.send(EndPrograms(programs, grace_s))

    def _pass_on(self, process: Process, output: ProgramOutput) -> None:
        """Count output that is new; raises HostError where it cannot be."""
        end = output.start + len(unpacked(output.data))
        most = process.taken + WINDOW_BYTES + PIECE_BYTES
        if not process.passed_on == output.start < end <= most:
            reason = f"its agent sends output of {output.program} that it cannot have"
            raise HostError(process.host, HostState.READY, reason)
        process.passed_on = end
        self._hosts[process.host].took_output(len(output.data))

    def _forget(self, run: str) -> None:
        """Release the GPUs of a run that is over, and have its folder removed."""
        group = self._groups.pop(run)
        for host in group.sent_to:
            host.send(EndPrograms((f"{run}/",), 0.0))
        for held in group.claimed:
            held.release()

    async def _shares(self, order: RunPrograms, group: Group) -> tuple[Share, ...]:
        """Return each host's part, its GPUs claimed, in the order of the hosts' lines."""
        wanted = order.wanted
        until = time.monotonic() + wanted.wait_s
        while not pick_free(self._claims(), wanted) and any(
            each.state in ON_THE_WAY for each in self._hosts.values()
        ):
            group.send(ProgramWaits(HOSTS_COME_UP))
            self.host_changed.clear()
            await within(LOOK_S, self.host_changed.wait())
        if not any(claims.devices for claims in self._claims()):
            return self._on_cpus(wanted)
        text = " ".join(order.launch.argv)[:NOTE_CHARACTERS]
        try:
            group.claimed = await hold(
                self._claims(),
                wanted,
                lambda: Note(text, since=time.time()),
                lambda why: group.send(ProgramWaits(self._with_failed(why))),
                until,
            )
        except ClusterError as error:
            raise ClusterError(self._with_failed(str(error))) from None
        lines = list(self._hosts)
        group.claimed.sort(key=lambda held: lines.index(held.host.name))
        claimed = ((held.host.name, held.devices) for held in group.claimed)
        return tuple(Share(host, devices, len(devices)) for host, devices in claimed)

    def _with_failed(self, why: str) -> str:
        """Return why GPUs cannot be had, with the hosts that failed, a line each."""
        failed = (each for each in self._hosts.values() if each.state is HostState.FAILED)
        return "\n".join(
            [
                *why.split("\n")[:1],
                *(f"{each.name}: {each.status.reason}" for each in failed),
                *why.split("\n")[1:],
            ]
        )

    def _on_cpus(self, wanted: Wanted) -> tuple[Share, ...]:
        """Return the parts of hosts that are to give no GPU, the first first.

        Raises ClusterError with why others cannot be used.
        """
        shares, left, problems = list[Share](), wanted.count, list[str]()
        for each in self._hosts.values():
            why, hint = self._why_unusable(each)
            places = 0 if why else min(each.host.workers or 1, wanted.per_host or left, left)
            if why:
                problems += [f"{each.name}: {why}", *[f"  {hint}"] * bool(hint)]
            elif places and places >= wanted.per_host:
                shares.append(Share(each.name, (), places))
                left -= places
        if left:
            number = f"{wanted.count} asked for, {wanted.count - left} on these hosts without a GPU"
            hint = "  workers=N on a host's line makes room for N processes"
            raise ClusterError("\n".join(problems or [f"too little room: {number}", hint]))
        return tuple(shares)

    def _why_unusable(self, host: FleetHost) -> tuple[str, str]:
        """Return why a host has neither a GPU nor CPUs for programs, and the hint."""
        if host.facts is None or host.state is not HostState.READY:
            return host.status.reason, host.status.hint
        found = checks.gpus(host.host, host.facts, self._settings)
        return (found.text, found.hint) if found.verdict is Verdict.BAD else ("", "")

    def _claims(self) -> list[HostClaims]:
        return [each.claims for each in self._hosts.values() if each.state is HostState.READY]

    async def _meeting(self, shares: tuple[Share, ...]) -> tuple[str, int]:
        """Return an address of the first host, with a free port, that all the others reach.

        Raises HeadError with the way that is closed.
        """
        first, *others = [self._hosts[share.host] for share in shares]
        address = _address_for(first, others)
        try:
            opened: Listening | None = await first.ask_agent(Listen(0, address), ANSWER_S)
            if opened is None or opened.error:
                why = opened.error if opened else NO_ANSWER
                raise HeadError(f"{first.name} cannot listen on {bracketed(address)}: {why}")
            order = Reach(0, address, opened.port, CONNECT_S)
            reached: list[Reached | None] = await asyncio.gather(
                *(each.ask_agent(order, ANSWER_S) for each in others)
            )
        finally:
            first.send(StopListening())
        for other, answer in zip(others, reached, strict=True):
            if answer is None or answer.error:
                why = answer.error if answer else NO_ANSWER
                way = closed(other.name, other.far_address, first.name, address, why)
                raise HeadError(f"{way}\n  {HINT}")
        return address, opened.port

    def _launch(
        self,
        order: RunPrograms,
        group: Group,
        shares: tuple[Share, ...],
        address: str,
        port: int,
    ) -> tuple[Place, ...]:
        """Send every process to its host."""
        for held in group.claimed:
            if held.host.lost or not held.lasts:
                raise HeadError(f"{held.host.name} was lost as it was to start, with its GPUs")
        launches = processes(order, shares, address, port)
        for place, launch in launches.items():
            lost = HeadError(f"{place.host} was lost as it was to start")
            if (host := self._hosts.get(place.host)) is None:
                raise lost
            limit = host.host.memory_bytes or 0
            start = StartProgram(place.program, launch, bool(order.send), limit)
            if not host.send(start):
                raise lost
            group.processes[place.program] = Process(start, place.host, host.agent_pid)
        return tuple(launches)


def _address_for(first: FleetHost, others: Iterable[FleetHost]) -> str:
    """Return where a host is reached by others."""
    address = first.far_address if first.tunnel else first.listen_address or first.far_address
    elsewhere = [each for each in others if not is_loopback(each.far_address)]
    return elsewhere[0].local_address if elsewhere and is_loopback(address) else address
