"""What the screen needs of a link to a head: the interface of `cluster.HeadLink`.

`cluster.HeadLink` has it, and so have the ends that tests play to a screen.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Protocol

from gputui.protocol.frontend import Attached, FromFrontend, Reply, Request, ToFrontend


class Link(Protocol):
    """A frontend's hold on a head."""

    attached: Attached
    where: str
    """The machine of the head; "" for this one."""

    async def request(self, message: Request) -> Reply:
        """Have a request carried out; raises HeadError with the reason when it is refused."""

    async def send(self, message: FromFrontend) -> None:
        """Send a message that asks for no answer."""

    def messages(self) -> AsyncIterator[ToFrontend]:
        """Yield what comes unasked; ends when the head is gone."""

    async def close(self) -> None:
        """Let go of the cluster."""


OpenLink = Callable[[], Awaitable[Link]]
"""Opens a link; called again when the head was lost. Raises HeadError when there is no head."""
