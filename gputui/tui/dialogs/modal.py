"""The frame of everything that is shown over the screen: dialogs, lists, forms, the palette."""

from typing import TypeVar

from textual.screen import ModalScreen

Result = TypeVar("Result")


class Modal(ModalScreen[Result]):
    """A framed box in the middle; its contents stand in one `Vertical`, of the kind's own size."""

    DEFAULT_CSS = """
    Modal { align: center middle; background: $background 40%; }
    Modal > Vertical {
        height: auto; padding: 0 1; border: round $primary; background: $surface;
    }
    Modal .title { text-style: bold; }
    """
