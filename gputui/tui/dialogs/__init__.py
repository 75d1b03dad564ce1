"""The dialogs that ask: a choice, a number of workers, an item of a list, the head's questions.

Each is a modal screen whose result is what was chosen, None for nothing. Escape always changes
nothing. Texts are shown as they are, without markup, and made harmless.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, ClassVar, TypeVar, cast

from textual import events, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.visual import VisualType
from textual.widget import Widget
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from gputui.errors import HeadError
from gputui.protocol.frontend import Asked
from gputui.tui.frame import Frame
from gputui.tui.rendering.format import many, safe

Result = TypeVar("Result")
Lines = Sequence[str]
Fetch = Callable[[], Awaitable[Lines]]
"""Fetches lines that a dialog does not wait for."""

STANDS_S = 2.0
"""For how long keys are kept for a dialog that is being drawn, or carries out an earlier key."""
UNASKED_S = 0.5
"""For how long a question that comes unasked takes no key."""
ALL = 1_000_000
STEPS = {
    "down": 1,
    "j": 1,
    "up": -1,
    "k": -1,
    "pagedown": 10,
    "space": 10,
    "pageup": -10,
    "home": -ALL,
    "g": -ALL,
    "end": ALL,
    "G": ALL,
}
"""Keys that move a long text, and by how many lines."""
BY = {"plus": 1, "up": 1, "equals_sign": 1, "minus": -1, "down": -1}
"""Keys that change a number, and by how much."""


class Modal(ModalScreen[Result]):
    """A framed box in the middle; its contents stand in one `Vertical`, of the kind's own size.

    Keys that are typed before it is seen are kept for it: `stands` waits until it takes them. It
    carries out its keys itself, one after the other, so that the key behind the one that closes it
    goes to what comes into sight. (Textual hands a key from the focused widget up to the app, which
    may have handed on the next one by then.)
    """

    DEFAULT_CSS = """
    Modal { align: center middle; background: $background 40%; }
    Modal > Vertical {
        height: auto; padding: 0 1; border: round $primary; background: $surface;
    }
    Modal .title { text-style: bold; }
    Modal .choices { width: auto; height: 1; margin-top: 1; }
    """

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(None)", show=False)]

    def __init__(self) -> None:
        super().__init__()
        self.drawn = asyncio.Event()

    def on_screen_resume(self) -> None:
        """Take keys once it is seen."""
        self.call_after_refresh(self.drawn.set)

    async def stands(self) -> None:
        """Wait, for a bound, until it takes keys, and has carried out those before."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STANDS_S):
                await self.drawn.wait()
                for _ in range(2):  # a key may be followed by a message, such as that of a choice
                    await self._idle()

    async def _idle(self) -> None:
        """Wait until the widgets from the focused one upwards have handled their messages."""
        for node in (self.focused or self).ancestors_with_self:
            handled = asyncio.Event()
            if node.call_later(handled.set):
                await handled.wait()
            if node is self:
                return

    async def on_key(self, event: events.Key) -> None:
        """Carry out a key that the focused widget left: the kind's own, then a bound one."""
        event.stop()
        bound = self.active_bindings.get(event.key)
        if not await self.take(event.key) and bound is not None:
            await self.app.run_action(bound.binding.action, bound.node)

    async def take(self, key: str) -> bool:
        """Carry out a key of this kind of dialog; return whether it was one."""
        return False

    async def choose(self, key: str) -> None:
        """End with the choice of this key."""
        self.dismiss(cast("Result", key))

    def scrolled(self, key: str) -> bool:
        """Move the text by a key; return whether it is a key for that."""
        if key in STEPS:
            self.query_one(VerticalScroll).scroll_relative(y=STEPS[key], animate=False)
        return key in STEPS


class Page(Modal[None]):
    """A long text; a key that neither moves it nor means something to its kind closes it."""

    DEFAULT_CSS = """
    Page { background: $background; }
    Page > Vertical { width: 96%; max-width: 100; height: 90%; padding: 0 2; }
    Page VerticalScroll { height: 1fr; scrollbar-size-vertical: 1; }
    Page .note { color: $text-muted; }
    """

    def __init__(self, text: VisualType, note: str) -> None:
        """`note` names its keys."""
        super().__init__()
        self.text, self._note = Static(text, markup=False), note

    def compose(self) -> ComposeResult:
        """Lay out the text, which may be longer than the screen."""
        with Vertical():
            yield VerticalScroll(self.text, can_focus=False)
            yield Static(self._note, classes="note", markup=False)

    async def take(self, key: str) -> bool:
        """Move through the text, or close it."""
        if not self.scrolled(key):
            self.dismiss(None)
        return True


class Choice(Static, can_focus=True):
    """One way to answer a dialog, taken by its key, with enter and with a click."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("right", "app.focus_next", show=False),
        Binding("left", "app.focus_previous", show=False),
        Binding("enter", "choose", show=False),
    ]
    DEFAULT_CSS = """
    Choice { width: auto; margin-right: 2; text-style: bold; }
    Choice.dangerous { color: $text-error; }
    Choice:focus { text-style: bold reverse; }
    """

    def __init__(self, key: str, label: str, *, dangerous: bool = False) -> None:
        super().__init__(f" [{key}] {label} ", markup=False, classes="dangerous" * dangerous)
        self.key = key

    async def action_choose(self) -> None:
        """Take this choice."""
        await cast("Modal[Any]", self.screen).choose(self.key)

    async def on_click(self, event: events.Click) -> None:
        """Take this choice."""
        event.stop()
        await self.action_choose()


class Dialog(Modal[str | None]):
    """A title, some lines, and choices: the first changes nothing, and has the focus.

    Lines that are to be fetched are filled in when they come; the dialog stands meanwhile.
    """

    DEFAULT_CSS = """
    Dialog > Vertical { width: auto; min-width: 40; max-width: 96%; max-height: 90%; padding: 0 2; }
    Dialog .title { width: auto; }
    Dialog VerticalScroll { height: auto; max-height: 70vh; width: auto; max-width: 100%; }
    Dialog .text { width: auto; max-width: 100%; }
    Dialog Input { width: 48; margin-top: 1; }
    """

    def __init__(
        self,
        title: str,
        lines: Lines | Fetch,
        choices: Sequence[Choice],
        middle: Sequence[Widget] = (),
    ) -> None:
        """`middle` stands between the text and the choices."""
        super().__init__()
        self._title, self._middle = title, middle
        self._choices = {choice.key: choice for choice in choices}
        self._lines = lines
        self._text = Static("…", markup=False, classes="text")
        self.failure: HeadError | None = None
        """Why its lines could not be fetched; it then ended by itself."""

    def compose(self) -> ComposeResult:
        """Lay out the frame."""
        with Vertical():
            yield Static(safe(self._title), markup=False, classes="title")
            yield VerticalScroll(self._text, can_focus=False)
            yield from self._middle
            yield Horizontal(*self._choices.values(), classes="choices")

    def on_mount(self) -> None:
        """Put the focus on the first choice, and show the lines."""
        self.set_focus(next(iter(self._choices.values())))
        if callable(self._lines):
            self._fetch(self._lines)
        else:
            self.say(self._lines)

    @work(exclusive=True)
    async def _fetch(self, fetch: Fetch) -> None:
        """Show lines once they come; those that others follow are given up."""
        try:
            self.say(await fetch())
        except HeadError as error:
            self.failure = error
            if self.is_current:
                self.dismiss(None)

    def say(self, lines: Lines) -> None:
        """Replace the text."""
        self._text.update("\n".join(map(safe, lines)))

    async def take(self, key: str) -> bool:
        """Take a choice by its key, or move the text; enter is for the focused choice."""
        if key not in self._choices or (key == "enter" and isinstance(self.focused, Choice)):
            return self.scrolled(key)
        await self.choose(key)
        return True


async def confirm(app: Frame, title: str, lines: Lines | Fetch, *, dangerous: bool = False) -> bool:
    """Ask whether to go on; for use in a command that is awaited.

    Raises HeadError where lines to fetch cannot be had.
    """
    dialog = Dialog(title, lines, (Choice("n", "no"), Choice("y", "yes", dangerous=dangerous)))
    chosen = await app.ask(dialog)
    if dialog.failure is not None and chosen is None:
        raise dialog.failure
    return chosen == "y"


class ScaleDialog(Dialog):
    """Asks for the number of workers, and shows the effect; `+ -` change it.

    `preview` describes the effect of a number, `wanted` is the number.
    """

    def __init__(self, workers: int, preview: Callable[[int], Awaitable[Lines]]) -> None:
        choices = (Choice("n", "no"), Choice("y", "yes"))
        super().__init__("Scale the cluster", self._effect, choices)
        self.wanted = workers
        self._preview = preview

    async def _effect(self) -> Lines:
        workers = self.wanted
        lines = await self._preview(workers)
        return (f"{many(workers, 'worker')}   (+ - changes it, :scale N sets it)", *lines)

    async def take(self, key: str) -> bool:
        """Change the number; other keys are every dialog's."""
        if key not in BY:
            return await super().take(key)
        self.wanted = max(0, self.wanted + BY[key])
        self._fetch(self._effect)
        return True


class QuestionDialog(Dialog):
    """A question of the head: a host key (yes or no), a password, a passphrase.

    Its result is the answer's text, "" for a no; None puts it off. It comes unasked, so that it
    takes no key at first: what somebody was typing must not answer it.
    """

    DEFAULT_CSS = """
    QuestionDialog .choices, QuestionDialog Input { visibility: hidden; }
    QuestionDialog.-open .choices, QuestionDialog.-open Input { visibility: visible; }
    """

    def __init__(self, asked: Asked) -> None:
        self.number = asked.question
        self._input: Input | None = None
        choices = (Choice("n", "no"), Choice("y", "yes, and remember it"))
        if asked.kind != "host-key":
            self._input = Input(password=asked.secret, compact=True)
            choices = (Choice("enter", "answer"), Choice("escape", "later"))
        title = f"{asked.host}: {asked.kind.replace('-', ' ')}"
        middle = [self._input] if self._input else []
        super().__init__(title, asked.text.splitlines(), choices, middle)

    def on_mount(self) -> None:
        """Show the choices once the question can have been seen."""
        self.set_timer(UNASKED_S, self._open)

    def _open(self) -> None:
        self.add_class("-open")
        self.set_focus(self._input or next(iter(self._choices.values())))

    async def take(self, key: str) -> bool:
        """Take no key that was typed before the question can have been seen."""
        return not self.has_class("-open") or await super().take(key)

    async def choose(self, key: str) -> None:
        """Answer."""
        if self._input is None:
            self.dismiss("yes" if key == "y" else "")
        else:
            self.dismiss(self._input.value if key == "enter" else None)


class Chooser(Modal[Result]):
    """A title and a list, which `j` and `k` move in as the arrows do; escape ends with None.

    Enter or a click ends with the key of an item.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "move('cursor_down')", show=False),
        Binding("k", "move('cursor_up')", show=False),
    ]
    DEFAULT_CSS = """
    Chooser > Vertical { width: 72; max-width: 95%; max-height: 90%; }
    Chooser OptionList { height: auto; max-height: 70vh; border: none; padding: 0; }
    """

    def __init__(self, title: str, items: Sequence[tuple[str, Content]]) -> None:
        super().__init__()
        self._title, self._keys = title, [key for key, _ in items]
        self.listed = OptionList(*(Option(text) for _, text in items), compact=True)

    def compose(self) -> ComposeResult:
        """Lay out the list."""
        yield Vertical(Static(self._title, classes="title"), self.listed)

    def action_move(self, action: str) -> None:
        """Move as the arrows do."""
        getattr(self.listed, f"action_{action}")()

    async def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Return the choice."""
        event.stop()
        await self.choose(self._keys[event.option_index])
