"""The page of `why`: it stands at once, and fills in what the head and its agents find."""

import asyncio

from textual import work
from textual.content import Content

from gputui.errors import HeadError
from gputui.model.verdicts import ANSWER_S, Evidence, Verdict, as_lines, verdicts
from gputui.protocol.frontend import Examine, Examined
from gputui.tui.attachment import Attachment
from gputui.tui.dialogs.modal import Page
from gputui.tui.rendering.format import safe
from gputui.tui.watched import Watched


class Why(Page):
    """The verdicts, the likeliest first, each with its evidence."""

    NOTE = "↑ ↓ more   r ask again   y copy   esc closes"

    def __init__(self, head: Attachment, watched: Watched) -> None:
        super().__init__()
        self._head, self._watched = head, watched
        self._found: tuple[Verdict, ...] = ()

    def on_mount(self) -> None:
        """Ask at once."""
        self._ask()

    @work(exclusive=True)
    async def _ask(self) -> None:
        snapshot = self._watched.snapshot
        hosts = len(snapshot.hosts) if snapshot else 0
        agents = f"{hosts} agent{'s' * (hosts != 1)}"
        self.text.update(
            f"waits for the head, the scheduler and {agents}: {ANSWER_S:.0f} s at most"
        )
        self._found = await self._verdicts()
        parts = [
            (safe(line), "" if line.startswith(" ") else "bold") for line in as_lines(self._found)
        ]
        self.text.update(Content("\n").join(Content.styled(*part) for part in parts))

    async def _verdicts(self) -> tuple[Verdict, ...]:
        try:
            async with asyncio.timeout(ANSWER_S):
                found = await self._head.request(Examine(0))
        except (HeadError, TimeoutError):
            return (Verdict("head-silent", self._head.sentence()),)
        snapshot = self._watched.snapshot
        assert isinstance(found, Examined) and snapshot
        events = tuple(self._watched.events)
        return verdicts(Evidence(snapshot, found.hosts, found.scheduler, events))

    async def take(self, key: str) -> bool:
        """Ask again, or copy; the rest is every page's."""
        if key == "r":
            self._ask()
        elif key == "y":
            self.app.copy_to_clipboard("\n".join(as_lines(self._found)))
        else:
            return await super().take(key)
        return True
