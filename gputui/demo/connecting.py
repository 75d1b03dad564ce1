"""The way to a simulated host: how long each stage takes it, and what goes wrong where.

What the fleet finds out by itself (another version of Dask, a port that cannot be reached) is wrong
with the agent; the rest fails here, in the words of the SSH connector.
"""

import asyncio
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gputui.demo.simulated_agent import AGAIN, SimulatedAgent, SimulatedHosts
from gputui.fleet.stages import Question, Stages
from gputui.model.snapshot import HostState

STAGE_S: Mapping[HostState, tuple[float, float]] = {
    HostState.RESOLVING: (0.1, 2.0),
    HostState.CONNECTING: (0.2, 1.2),
    HostState.AUTHENTICATING: (0.3, 1.4),
}
"""The shortest and the longest time that a stage takes."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a host does not come up; one that `mends` does when it is tried again."""

    stage: HostState
    reason: str
    hint: str
    stderr: str
    mends: bool = False


KEYS = Refusal(
    HostState.AUTHENTICATING,
    "the host refused every key",
    "ssh-copy-id {host}",
    "{host}: Permission denied (publickey,password).",
)
NO_SSHD = Refusal(
    HostState.CONNECTING,
    "connection refused on port 22",
    "start sshd there, or write the port: {host}:2222",
    "connect to host {host} port 22: Connection refused",
    mends=True,
)


class DemoHosts(SimulatedHosts):
    """The hosts of a demo, some of which do not come up at once."""

    def __init__(self, new_agent: Callable[[str, int], SimulatedAgent]) -> None:
        super().__init__(new_agent)
        self.refusals: dict[str, Refusal] = {}
        self.asks: dict[str, str] = {}
        """Host → the fingerprint of its key, where that is not known."""

    def spread_troubles(self, names: list[str], rng: random.Random, *, questions: bool) -> None:
        """Choose the hosts that will be refused, and the one whose key is not known."""
        number = max(2, len(names) // 40) if len(names) > 5 else 0
        refused = rng.sample(names[1:], number)
        for turn, name in enumerate(refused):
            match turn % 4:
                case 0:
                    self.refusals[name] = KEYS
                case 1:
                    self.refusals[name] = NO_SSHD
                case 2:
                    old = (("dask", "2024.5.1"), ("distributed", "2024.5.1"), ("numpy", "1.26.4"))
                    self.agent(name).packages = old
                case 3:
                    self.agent(name).reach_error = "[Errno 110] Connection timed out"
        if len(names) > 2 and questions:
            fingerprint = "".join(rng.choices("ABCDEFabcdefghijkmnpq23456789+/", k=43))
            self.asks[next(name for name in names[1:] if name not in refused)] = fingerprint

    async def come(self, agent: SimulatedAgent, stages: Stages) -> None:
        """Pass the stages on the way to an agent."""
        pace = agent.pace * (AGAIN if agent.met else 1.0)
        for state, bounds in STAGE_S.items():
            async with stages.enter(state, "no answer"):
                await asyncio.sleep(agent.rng.uniform(*bounds) * pace)
                if not agent.reachable:
                    raise stages.error("no route to host", transient=True)
                if (refusal := self.refusals.get(agent.host)) and refusal.stage is state:
                    if refusal.mends:
                        del self.refusals[agent.host]
                    raise stages.error(
                        refusal.reason,
                        refusal.hint.format(host=agent.host),
                        stderr_tail=(refusal.stderr.format(host=agent.host),),
                    )
                if state is HostState.AUTHENTICATING and agent.host in self.asks:
                    await self._ask(agent.host, stages)

    async def _ask(self, host: str, stages: Stages) -> None:
        fingerprint = self.asks[host]
        text = (
            f"The key of {host} is not known.\nED25519 SHA256:{fingerprint}\n"
            "Is this the host, and shall its key be added to known_hosts?"
        )
        if await stages.ask(Question("host-key", text, False)) not in ("y", "yes"):
            raise stages.error(
                f"unknown host key ED25519 SHA256:{fingerprint}",
                f"ssh-keyscan {host} >> ~/.ssh/known_hosts, after comparing the fingerprint",
            )
        del self.asks[host]
