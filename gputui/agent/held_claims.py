"""Claims that an agent holds: on the GPUs of its workers, and those that its head asks for."""

import asyncio
import contextlib
import math
import os
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from gputui.agent.claims import Claims, open_claims
from gputui.model.readings import Claim, Note
from gputui.process import procfs
from gputui.protocol.agent import (
    Claimed,
    ClaimEnded,
    ClaimGpus,
    Configure,
    EndClaims,
    ReleaseGpus,
    StandInLine,
)

IDLE_S = 60.0
"""A GPU that has done nothing for so long is noted as idle."""
FOLLOW_S = 2.0
"""How often claims follow the workers; a GPU that others leave is claimed so much later."""


class HeldClaims:
    """Claims for one agent; `claims` is None where this host has no folder for them."""

    def __init__(
        self,
        environ: Mapping[str, str],
        configure: Configure,
        idle_since: Mapping[str, float],
        send: Callable[[ClaimEnded], None],
    ) -> None:
        """Say by `send` that a claim has ended; `idle_since` has the GPUs that do nothing."""
        self.claims, self.problem = open_claims(environ)
        text = f"cluster {configure.cluster}" if configure.cluster else ""
        self._note = Note(text, until=configure.promised_until)
        self._send = send
        self._idle_since = idle_since
        self._notes: dict[str, Note] = {}
        self._asked: set[str] = set()
        """GPUs that the head claimed, whether workers run there or not."""
        self.told: set[str] = set()
        """GPUs of which the head knows that somebody else has claimed them."""
        self._ended: ClaimEnded | None = None
        """The end of a claim, which a head may have missed."""

    def carry_out(self, order: StandInLine | ClaimGpus | ReleaseGpus | EndClaims) -> Claimed:
        """Claim GPUs, release them or wait in line; return the outcome."""
        if (claims := self.claims) is None:
            return Claimed(order.request, error=self.problem)
        try:
            match order:
                case StandInLine(uuids=()):
                    claims.leave_line()
                case StandInLine(number, uuids, gpus, note, place):
                    return Claimed(number, place=claims.wait_in_line(uuids, gpus, note, place))
                case ReleaseGpus(_, uuids):
                    self._release(claims, uuids)
                case EndClaims(_, uuids):
                    claims.end_own(uuids)
                case ClaimGpus(number, uuids, note, pid) if pid is not None:
                    return self._claim_for(claims, pid, uuids, note, number)
                case ClaimGpus(number, uuids, note):
                    ahead = tuple(each.holder.user or "somebody" for each in claims.ahead(uuids))
                    held = () if ahead else self._claim(claims, uuids, note)
                    return Claimed(number, held, ahead)
        except OSError as error:
            return Claimed(order.request, error=f"claims: {error.strerror or error}")
        return Claimed(order.request)

    def _claim(self, claims: Claims, uuids: Collection[str], note: Note) -> tuple[str, ...]:
        """Claim GPUs as the head asks; return those that are held, by its own workers, too."""
        held = tuple((self._asked | claims.held).intersection(uuids)) or claims.claim(uuids, note)
        if not held:
            self._asked.update(uuids)
            self._notes.update(dict.fromkeys(uuids, note))
        return held

    def _claim_for(
        self, claims: Claims, pid: int, uuids: Collection[str], note: Note, number: int
    ) -> Claimed:
        """Claim the GPUs that a process uses, until it ends."""
        if procfs.owner(pid) != os.getuid():
            return Claimed(number, error=f"process {pid} is none of yours")
        with contextlib.ExitStack() as unless_claimed:
            ended = os.pidfd_open(pid)
            unless_claimed.callback(os.close, ended)
            if not (held := self._claim(claims, uuids, note)):
                unless_claimed.pop_all()
                asyncio.get_running_loop().add_reader(
                    ended, self._process_ended, claims, ended, uuids
                )
        return Claimed(number, held)

    def _process_ended(self, claims: Claims, descriptor: int, uuids: Collection[str]) -> None:
        asyncio.get_running_loop().remove_reader(descriptor)
        os.close(descriptor)
        self._release(claims, uuids)
        self._ended = ClaimEnded()
        self.tell()

    def close(self) -> None:
        """End all claims and the wait in line; their files go, too."""
        if self.claims is not None:
            self.claims.release()
            self.claims.leave_line()

    def tell(self) -> None:
        """Say that a claim has ended, again to a head that has just connected."""
        if self._ended:
            self._send(self._ended)

    def _release(self, claims: Claims, uuids: Collection[str]) -> None:
        asked = self._asked.intersection(uuids)
        self._asked -= asked
        claims.release(asked)

    def follow(self, devices: Collection[str]) -> list[str]:
        """Claim the GPUs of the workers as far as nobody else has them, and release the others.

        Returns a line for each GPU that somebody else has, once. Raises OSError where the folder
        takes no file.
        """
        if (claims := self.claims) is None:
            return []
        wanted, lost = self._asked.union(devices), claims.keep()
        claims.release(claims.held - wanted)
        others = set[str]()
        for uuid in wanted - claims.held - {*lost}:
            note = self._notes[uuid] if uuid in self._asked else self._note
            self._notes[uuid] = replace(note, since=time.time())
            others.update(claims.claim([uuid], self._notes[uuid]))
        for uuid in claims.held:
            since = self._idle_since.get(uuid, math.inf)
            idle_since = since if time.time() - since > IDLE_S else None
            if self._notes[uuid].idle_since != idle_since or not claims.is_noted(uuid):
                self._notes[uuid] = replace(self._notes[uuid], idle_since=idle_since)
                claims.note(uuid, self._notes[uuid])
        for uuid, claim in claims.seen(self._asked - claims.held).items():
            if not self._ended:
                self._ended = ClaimEnded(f"{uuid} is claimed by {_holder(claim)}")
                self.tell()
        held = claims.seen(others - self.told)
        self.told |= held.keys()
        return [f"{uuid} is in use here, and claimed by {_holder(held[uuid])}" for uuid in held]


def _holder(claim: Claim) -> str:
    return claim.user or claim.note.text or "others"
