"""Connecting to a simulated host: how long each stage takes, and where it fails.

Problems that the fleet detects (another Dask, an unreachable port) are the agent's; the others are
raised here, worded as the SSH connector's.
"""

import asyncio
import random
from collections.abc import Callable

from gputui.demo.simulated_agent import SimulatedAgent, SimulatedHosts
from gputui.fleet.stages import Question, Stages
from gputui.model.snapshot import HostState

STAGES = (HostState.RESOLVING, HostState.CONNECTING, HostState.AUTHENTICATING)
STAGE_S = (0.2, 1.5)
"""The shortest and the longest time that a stage takes."""
OLD_DASK = (("dask", "2024.5.1"), ("distributed", "2024.5.1"), ("numpy", "1.26.4"))


class DemoHosts(SimulatedHosts):
    """The hosts of a demo, some of which do not come up at once."""

    def __init__(self, new_agent: Callable[[str, int], SimulatedAgent]) -> None:
        super().__init__(new_agent)
        self._refuse_keys: set[str] = set()
        self._refuse_once: set[str] = set()
        """Hosts without an sshd until they are tried again."""
        self._asks: dict[str, str] = {}
        """Host → the fingerprint of its key, where that is not known."""

    def spread_troubles(self, names: list[str], rng: random.Random, *, questions: bool) -> None:
        """Choose the hosts that will be refused, and the one whose key is not known."""
        refused = rng.sample(names[1:], max(2, len(names) // 40) if len(names) > 5 else 0)
        self._refuse_keys.update(refused[::4])
        self._refuse_once.update(refused[1::4])
        for name in refused[2::4]:
            self.agent(name).packages = OLD_DASK
        for name in refused[3::4]:
            self.agent(name).reach_error = "[Errno 110] Connection timed out"
        if len(names) > 2 and questions:
            fingerprint = "".join(rng.choices("ABCDEFabcdefghijkmnpq23456789+/", k=43))
            self._asks[next(name for name in names[1:] if name not in refused)] = fingerprint

    async def come(self, agent: SimulatedAgent, stages: Stages) -> None:
        """Pass the stages on the way to an agent."""
        host = agent.host
        pace = agent.pace * (0.1 if agent.workers else 1.0)
        for state in STAGES:
            async with stages.enter(state, "no answer"):
                await asyncio.sleep(agent.rng.uniform(*STAGE_S) * pace)
                if not agent.reachable:
                    raise stages.error("no route to host", transient=True)
                if state is HostState.CONNECTING and host in self._refuse_once:
                    self._refuse_once.remove(host)
                    raise stages.error(
                        "connection refused on port 22",
                        f"start sshd there, or write the port: {host}:2222",
                        stderr_tail=(f"connect to host {host} port 22: Connection refused",),
                    )
                if state is HostState.AUTHENTICATING and host in self._refuse_keys:
                    raise stages.error(
                        "the host refused every key",
                        f"ssh-copy-id {host}",
                        stderr_tail=(f"{host}: Permission denied (publickey,password).",),
                    )
                if state is HostState.AUTHENTICATING and host in self._asks:
                    await self._ask(host, stages)

    async def _ask(self, host: str, stages: Stages) -> None:
        key = f"ED25519 SHA256:{self._asks[host]}"
        text = (
            f"The key of {host} is not known.\n{key}\n"
            "Is this the host, and shall its key be added to known_hosts?"
        )
        if await stages.ask(Question("host-key", text, False)) not in ("y", "yes"):
            hint = f"ssh-keyscan {host} >> ~/.ssh/known_hosts, after comparing the fingerprint"
            raise stages.error(f"unknown host key {key}", hint)
        del self._asks[host]
