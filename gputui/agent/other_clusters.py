"""This user's other clusters on a host: they share it, and each cluster's user is to know."""

import asyncio
from collections.abc import Callable

from gputui.agent.place import AgentPlace
from gputui.protocol.agent import FromAgent, Trouble

LOOK_EVERY_S = 5.0


class OtherClusters:
    """Finds the clusters that are there when an agent sends its facts, and later ones."""

    def __init__(
        self, place: AgentPlace, cluster_id: str, send: Callable[[FromAgent], None]
    ) -> None:
        self._place = place
        self._cluster_id = cluster_id
        self._send = send
        self._named: tuple[str, ...] | None = None

    def name(self) -> tuple[str, ...]:
        """Return the names of those that are there now, for the facts."""
        self._named = self._place.others(self._cluster_id)
        return self._named

    async def watch(self) -> None:
        """Report each that comes after the facts were sent, once."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            if self._named is None:
                continue
            before = self._named
            for cluster in sorted(set(self.name()) - set(before)):
                hint = "give each a part with gpus=, workers= and memory="
                self._send(Trouble(f"your cluster {cluster} runs here now, too: {hint}"))
