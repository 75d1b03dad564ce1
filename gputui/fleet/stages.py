"""How hosts are reached: the settings of a fleet, and the stages a host passes until it is ready.

Each stage has a bound that pauses for a question, and is entered with the message for running out
of time; entering one is what changes the host's state.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import field, replace
from functools import cache

from gputui.agent.packages import installed
from gputui.errors import HostError
from gputui.model.frozen import frozen
from gputui.model.plain_text import safe
from gputui.model.readings import NOTHING_WANTED, Wanted
from gputui.model.snapshot import HostState
from gputui.protocol.starter import Settings

PATIENT = 6
"""How many times the bound of a stage the user's own commands, and those of a host, may take."""


@cache
def installed_here() -> Mapping[str, str]:
    """Return distribution → version of this process, as an agent reports those of its host."""
    return dict(installed())


def _version(name: str) -> str:
    return dict(installed(names=(name,))).get(name, "")


@frozen
class Versions:
    """The versions that a host must have exactly: pickles and Dask's messages depend on them."""

    python: str = f"{sys.version_info.major}.{sys.version_info.minor}"
    """`3.11`: the minor version decides what a pickled function can be read by."""
    dask: str = field(default_factory=lambda: _version("dask"))
    distributed: str = field(default_factory=lambda: _version("distributed"))


@frozen
class FleetSettings(Settings):
    """How the hosts of one cluster are reached and watched; times in seconds."""

    cluster_id: str
    cluster: str = ""
    """Its name; "" for what runs no workers."""
    once: bool = False
    """Whether the hosts' facts are all that is asked for."""
    telemetry_interval_s: float = 1.0
    start_timeout_s: float = 60.0
    """How long a worker that was asked for, or forked, may take to register."""
    ping_interval_s: float = 1.0
    silence_s: float = 5.0
    """A host that has said nothing for so long is silent; telemetry comes every second."""
    reconnect_s: tuple[float, ...] = (0.2, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0)
    """Waits between attempts to reconnect; the last one repeats.

    None is longer than the interval of pings while the host's lease lasts: its workers live.
    """
    wanted: Wanted = NOTHING_WANTED
    """The free GPUs that the cluster takes; with a count of 0 and no gpus=free:N, all of them."""
    promised_until: float | None = None
    """When the user means to be done; for the notes of claims."""
    cpu_fallback: bool = False
    """Whether a host without a GPU may run CPU workers without `gpus=none`."""
    environ: tuple[tuple[str, str], ...] = ()
    """What workers find in their environment; a host's own `env.X=` comes over it."""
    temporary_directory: str | None = None
    """Where workers keep their files; None is where each host keeps such things."""
    frontends: Callable[[], tuple[int, ...]] = tuple
    """Returns the processes on this machine that use the cluster, by pid."""
    versions: Versions = field(default_factory=lambda: Versions())


@frozen
class Question:
    """A question for the user while a host is being reached."""

    kind: str
    """host-key, password or passphrase, as in `protocol.frontend.Asked`."""
    text: str
    secret: bool


Ask = Callable[[Question], Awaitable[str | None]]
"""Asks a user; None for no, or without a user to ask."""


class Stages:
    """The stages of one attempt to reach one host."""

    def __init__(
        self,
        host: str,
        timeout_s: float,
        *,
        ask: Ask,
        entered: Callable[[HostState, str], None] = lambda state, text: None,
        connect_s: float | None = None,
    ) -> None:
        """Bound each stage by `timeout_s`, and connecting by `connect_s` where that is given.

        `entered` is called with a stage and the step in it, "" for no step in particular.

        TCP waits twice as long for each further try: another connection is sooner there.
        """
        self.host = host
        self.timeout_s = timeout_s
        self._connect_s = connect_s or timeout_s
        self.current = HostState.RESOLVING
        self.dropped = 0
        """Connections that the server dropped before it said anything; each was tried again."""
        self.asked = 0
        """Questions put to the user; a server may not have waited for the answer."""
        self._entered = entered
        self._ask = ask
        self._timeout: asyncio.Timeout | None = None
        self._bound_s = timeout_s
        self._late = self._hint = ""

    @asynccontextmanager
    async def enter(
        self, state: HostState, late: str, hint: str = "", *, bound_s: float | None = None
    ) -> AsyncIterator[None]:
        """Be in a stage for at most its bound; raises HostError with `late` after that.

        The bound is `timeout_s` where none is given, and counts from the last `progress`.
        """
        self.current = state
        self._entered(state, "")
        self._late, self._hint = late, hint
        self._bound_s = bound_s or (
            self._connect_s if state is HostState.CONNECTING else self.timeout_s
        )
        try:
            async with asyncio.timeout(self._bound_s) as self._timeout:
                yield
        except TimeoutError as error:
            if self._timeout is None or not self._timeout.expired():
                raise
            raise self.error(self._late, self._hint, transient=True) from error
        finally:
            self._timeout = None

    def wait_longer(self, late: str, hint: str) -> None:
        """Let the rest of the current stage take `PATIENT` times its bound, with another message.

        It is for what others do in their own time: a lock, a PAM module, a user's command.
        """
        self._late, self._hint = late, hint
        self._bound_s = self.timeout_s * PATIENT
        self.progress()

    def progress(self, text: str = "") -> None:
        """Let the clock of the current stage start again: the host has done something.

        `text` describes the progress.
        """
        if text:
            self._entered(self.current, text)
        if self._timeout and self._timeout.when() is not None:
            self._timeout.reschedule(asyncio.get_running_loop().time() + self._bound_s)

    async def ask(self, question: Question) -> str | None:
        """Ask a user; the time that takes does not count."""
        self.asked += 1
        with self.pause():
            return await self._ask(replace(question, text=safe(question.text)))

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Stop the clock of the current stage."""
        timeout, now = self._timeout, asyncio.get_running_loop().time
        when = timeout.when() if timeout else None
        if timeout is None or when is None:
            yield
            return
        left = when - now()
        timeout.reschedule(None)
        try:
            yield
        finally:
            if self._timeout is timeout:  # the stage may have ended meanwhile
                timeout.reschedule(now() + left)

    def error(
        self,
        reason: str,
        hint: str = "",
        *,
        transient: bool = False,
        stderr_tail: tuple[str, ...] = (),
    ) -> HostError:
        """Return the failure of the current stage; `transient` ones are worth another attempt."""
        return HostError(
            self.host,
            self.current,
            reason,
            hint=hint,
            stderr_tail=stderr_tail,
            transient=transient,
        )
