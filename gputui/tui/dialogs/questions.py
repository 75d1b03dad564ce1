"""Dialogs that ask: a choice, a number of workers, an answer to the head's question.

Each is a modal screen whose result is what was chosen, None for nothing. Escape always changes
nothing. Texts are shown as they are, without markup, and made harmless.
"""

from collections.abc import Awaitable, Callable, Sequence

from textual import events, work
from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.widgets import Input, Static

from gputui.errors import HeadError
from gputui.protocol.frontend import Asked
from gputui.tui.dialogs.modal import STEPS, Choice, Choices, Modal
from gputui.tui.rendering.format import safe

CURSOR = ("tab", "shift+tab", "left", "right")
"""Keys of the focused widget."""
UNASKED_S = 0.5
"""For how long a question that comes unasked takes no key."""

Lines = Sequence[str]
Fetch = Callable[[], Awaitable[Lines]]
"""Fetches lines that a dialog does not wait for."""


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

    def __init__(self, title: str, lines: Lines | Fetch, choices: Sequence[Choice]) -> None:
        super().__init__()
        self._title, self._choices = title, tuple(choices)
        self._fetch = lines if callable(lines) else None
        self._text = Static(
            "…" if callable(lines) else safe_lines(lines), markup=False, classes="text"
        )
        self.failure: HeadError | None = None
        """Why its lines could not be fetched; it then ended by itself."""

    def compose(self) -> ComposeResult:
        """Lay out the frame."""
        with Vertical():
            yield Static(safe(self._title), markup=False, classes="title")
            with VerticalScroll(can_focus=False):
                yield self._text
            yield from self.middle()
            yield Choices(*self._choices)

    def middle(self) -> ComposeResult:
        """Yield the widgets between the text and the choices."""
        yield from ()

    def on_mount(self) -> None:
        """Begin; what each kind of dialog does then is its own."""
        self.begin()
        if self._fetch is not None:
            self._fill(self._fetch)

    @work
    async def _fill(self, fetch: Fetch) -> None:
        try:
            self.say(await fetch())
        except HeadError as error:
            self.failure = error
            if self.is_current:
                self.dismiss(None)

    def begin(self) -> None:
        """Put the focus on the first choice."""
        self.set_focus(self._choices[0])

    def say(self, lines: Lines) -> None:
        """Replace the text."""
        self._text.update(safe_lines(lines))

    async def on_key(self, event: events.Key) -> None:
        """Take a choice by its key; move the text; leave with escape."""
        chosen = event.key == "enter" and isinstance(self.focused, Choice)
        if chosen or event.key in CURSOR:
            return
        event.stop()
        event.prevent_default()
        if event.key == "escape":
            self.dismiss(None)
        elif event.key in {choice.key for choice in self._choices}:
            self.choose(event.key)
        elif event.key in STEPS:
            scroll = self.query_one(VerticalScroll)
            scroll.scroll_relative(y=STEPS[event.key], animate=False)

    def on_choice_chosen(self, event: Choice.Chosen) -> None:
        """Take the choice under the cursor, or one that was clicked."""
        self.choose(event.key)

    def choose(self, key: str) -> None:
        """End with this choice."""
        self.dismiss(key)


def safe_lines(lines: Lines) -> str:
    """Return harmless lines as one text."""
    return "\n".join(map(safe, lines))


class ScaleDialog(Dialog):
    """Asks for the number of workers, and shows the effect; `+ -` and digits change it.

    Its result is the number as text. `preview` describes the effect of a number.
    """

    def __init__(
        self, workers: int, preview: Callable[[int], Awaitable[Lines]], title: str
    ) -> None:
        choices = (Choice("n", "no"), Choice("y", "yes"))
        super().__init__(title, ("",), choices)
        self.wanted = workers
        self._preview = preview
        self._typed = ""

    def begin(self) -> None:
        """Preview the first number."""
        super().begin()
        self._look()

    async def on_key(self, event: events.Key) -> None:
        """Change the number; other keys are for the dialog's own handler, which comes next."""
        digits = event.character or ""
        if event.key in ("plus", "up", "equals_sign"):
            self._change(self.wanted + 1)
        elif event.key in ("minus", "down"):
            self._change(max(0, self.wanted - 1))
        elif digits.isdecimal() and digits.isascii() and len(self._typed) < 5:
            self._typed += digits
            self._change(int(self._typed), typed=True)
        elif event.key == "backspace":
            self._typed = self._typed[:-1]
            self._change(int(self._typed or 0), typed=True)
        else:
            return
        event.stop()
        event.prevent_default()

    def _change(self, workers: int, *, typed: bool = False) -> None:
        self.wanted = workers
        if not typed:
            self._typed = ""
        self._look()

    @work(exclusive=True)
    async def _look(self) -> None:
        """Show what this number would do; a look that another one follows is given up."""
        workers = self.wanted
        lines = await self._preview(workers)
        self.say((f"{workers} workers   (+ - or type a number)", *lines))

    def choose(self, key: str) -> None:
        """End with the number."""
        self.dismiss(str(self.wanted) if key == "y" else None)


class QuestionDialog(Dialog):
    """A question of the head: a host key (yes or no), a password, a passphrase.

    Its result is the answer's text, "" for a no; None puts it off. It comes unasked, so that it
    takes no key at first: what somebody was typing must not answer it.
    """

    DEFAULT_CSS = """
    QuestionDialog Choices, QuestionDialog Input { visibility: hidden; }
    QuestionDialog.-open Choices, QuestionDialog.-open Input { visibility: visible; }
    """

    def __init__(self, asked: Asked) -> None:
        self._held = True
        self.number = asked.question
        self._secret = asked.secret
        self._yes_or_no = asked.kind == "host-key"
        choices = (
            (Choice("n", "no"), Choice("y", "yes, and remember it"))
            if self._yes_or_no
            else (Choice("enter", "answer"), Choice("escape", "later"))
        )
        title = f"{asked.host}: {asked.kind.replace('-', ' ')}"
        super().__init__(title, asked.text.splitlines(), choices)

    def middle(self) -> ComposeResult:
        """Give a line to type a secret into."""
        if not self._yes_or_no:
            yield Input(password=self._secret, compact=True)

    def begin(self) -> None:
        """Show the choices once the question can have been seen."""
        self.set_timer(UNASKED_S, self._take_answers)

    def _take_answers(self) -> None:
        self._held = False
        self.add_class("-open")
        if self._yes_or_no:
            super().begin()
        else:
            self.set_focus(self.query_one(Input))

    async def on_key(self, event: events.Key) -> None:
        """Take no key that was typed before the question can have been seen."""
        if self._held:
            event.stop()
            event.prevent_default()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Answer with the typed text."""
        self.dismiss(event.value)

    def choose(self, key: str) -> None:
        """Answer."""
        if self._yes_or_no:
            self.dismiss("yes" if key == "y" else "")
        else:
            self.dismiss(self.query_one(Input).value if key == "enter" else None)
