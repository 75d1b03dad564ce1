"""The frame of everything that is shown over the screen: dialogs, lists, forms, the palette."""

import asyncio
import contextlib
from typing import TypeVar

from textual.screen import ModalScreen

Result = TypeVar("Result")

STANDS_S = 2.0
"""For how long keys are kept for a dialog that is being drawn."""


class Modal(ModalScreen[Result]):
    """A framed box in the middle; its contents stand in one `Vertical`, of the kind's own size.

    Keys that are typed before it stands are kept for it: `stands` says when it takes them.
    """

    DEFAULT_CSS = """
    Modal { align: center middle; background: $background 40%; }
    Modal > Vertical {
        height: auto; padding: 0 1; border: round $primary; background: $surface;
    }
    Modal .title { text-style: bold; }
    """

    def __init__(self) -> None:
        super().__init__()
        self._stands = asyncio.Event()

    def on_screen_resume(self) -> None:
        """Take keys once something has the focus."""
        self.call_after_refresh(self._stands.set)

    async def stands(self) -> None:
        """Wait until it takes keys, for a bound."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STANDS_S):
                await self._stands.wait()
