"""The prompt: a `/` filter or a `:` command, with completion. `tab` completes the last word as far
as it is unambiguous, then cycles through the candidates; up and down go through earlier lines.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from os.path import commonprefix
from pathlib import Path

from rich.segment import Segment
from textual import events
from textual.geometry import Region
from textual.strip import Strip
from textual.widgets import Input

from gputui.tui.rendering.format import safe

Candidates = Callable[[str], Sequence[str]]
"""All texts that the last word of a line can become."""


def fitting(word: str, known: Iterable[str]) -> list[str]:
    """Return the completions of a word, in order, each once.

    >>> fitting("s", ["scale", "svd", "run", "svd"])
    ['scale', 'svd']
    """
    lowered = word.lower()
    return sorted({each for each in known if each.lower().startswith(lowered)})


def last_word(line: str) -> str:
    """Return the word at the end of a line, "" behind a space."""
    return "" if line.endswith(" ") else (line.split() or [""])[-1]


def completed(line: str, candidates: Sequence[str]) -> str:
    """Return a line whose last word is completed as far as all candidates agree.

    One candidate is completed whole, with a space behind it unless more is to be typed there.

    >>> completed("run sv", ["svd"]), completed("run svd r", ["rows=", "rank="])
    ('run svd ', 'run svd r')
    >>> completed("scale no", ["node-01", "node-02"])
    'scale node-0'
    """
    word = last_word(line)
    if not candidates:
        return line
    begun = commonprefix(candidates)  # noqa: RUF071 (not of paths)
    if len(begun) < len(word):
        return line
    whole = len(candidates) == 1 and begun[-1:] not in "=:<>/"
    return line[: len(line) - len(word)] + begun + (" " if whole else "")


def files(word: str, suffixes: tuple[str, ...] = ()) -> list[str]:
    """Return the files and folders whose names begin so; those with other suffixes are left out."""
    folder, _, begun = word.rpartition("/")
    base = folder + "/" if "/" in word else ""
    try:
        found = sorted(Path(base or ".").expanduser().iterdir())
    except (OSError, RuntimeError):  # RuntimeError: there is no user of this name
        return []
    return [
        f"{base}{path.name}{'/' if path.is_dir() else ''}"
        for path in found
        if path.name.startswith(begun)
        and (begun or not path.name.startswith("."))
        and (path.is_dir() or not suffixes or path.suffix in suffixes)
    ]


LONGEST = 500
"""Characters; a paste of more is cut."""

CLOSES_S = 2.0
"""For how long keys are kept for what comes into focus after the line."""


class Prompt(Input):
    """One line of input, hidden until `ask`."""

    DEFAULT_CSS = """
    Prompt { display: none; height: 1; border: none; padding: 0 1 !important; }
    Prompt:focus { border: none; }
    """

    def __init__(
        self, closed: Callable[[], None], offered: Callable[[Sequence[str]], None]
    ) -> None:
        """`closed` is called when the line is closed, `offered` with what a word can become."""
        super().__init__(max_length=LONGEST, compact=True, select_on_focus=False)
        self._when_closed, self._offer = closed, offered
        self._mark = ""
        self._answer: asyncio.Future[str | None] | None = None
        """What the line comes to, while it is in sight."""
        self._back, self._typed = 0, ""
        """How many of them back this one is, and the line that was typed instead."""
        self._round: list[str] = []
        """Lines that `tab` goes through."""

    @property
    def active(self) -> bool:
        """Whether something is being asked."""
        return self._answer is not None

    async def ask(
        self,
        mark: str,
        value: str = "",
        *,
        candidates: Candidates = lambda line: (),
        typed: Callable[[str], None] = lambda line: None,
        past: Sequence[str] = (),
    ) -> str | None:
        """Show the line with this value at once, and return the typed line; None for escape.

        `mark` is the text before the line, and a placeholder after it while the line is empty;
        `candidates` returns completions of the last word, `typed` is called with each change,
        `past` were typed before.
        """
        self._mark, _, self.placeholder = mark.partition(" ")
        self._candidates, self._when_typed, self._past = candidates, typed, past
        self._back, self._round = 0, []
        self._answer = asyncio.get_running_loop().create_future()
        self.display = True
        self._put(value)
        self.screen.set_focus(self)  # at once: the keys behind the one that called are next
        return await self._answer

    def render_lines(self, crop: Region) -> list[Strip]:
        """Draw the line, and its mark into the padding before it."""
        strips = super().render_lines(crop)
        if self._mark and strips and crop.x == 0:
            mark = Strip([Segment(self._mark, self.rich_style)], 1)
            strips[0] = Strip.join([mark, strips[0].crop(1)])
        return strips

    async def closes(self) -> None:
        """Wait, for a bound, until the line is closed: the next key belongs to the view."""
        if self._answer is not None and self.screen.focused is self:
            await asyncio.wait([self._answer], timeout=CLOSES_S)

    def _close(self, line: str | None) -> None:
        answer, self._answer = self._answer, None
        self.display = False
        if answer is not None and not answer.done():
            answer.set_result(line)
        self._when_closed()

    def on_paste(self, event: events.Paste) -> None:
        """Take no more of a paste than fits, and nothing that a terminal would obey."""
        event.prevent_default()
        event.stop()
        room = LONGEST - len(self.value)
        self.insert_text_at_cursor(safe(event.text[:room].replace("\n", " ")))

    async def on_key(self, event: events.Key) -> None:
        """Handle escape, tab, up and down, and what a key is bound to."""
        if not self.active:
            return
        if event.key == "escape":
            self._close(None)
        elif event.key == "tab":
            self._complete()
        elif event.key in ("up", "down"):
            self._go_back(1 if event.key == "up" else -1)
        else:
            self._round = []
            bound = self.screen.active_bindings.get(event.key)
            if bound is None or bound.node is not self:
                return
            # Textual would have the app call this, behind the keys that were typed after it.
            await self.run_action(bound.binding.action)
        event.stop()
        event.prevent_default()

    def _complete(self) -> None:
        """Complete the last word as far as all candidates agree, then try them in turn."""
        if self._round and self.value in self._round:
            place = self._round.index(self.value) + 1
            self._put(self._round[place % len(self._round)])
            return
        line, found = self.value, self._candidates(self.value)
        longer = completed(line, found)
        if longer == line and len(found) > 1:
            before = line[: len(line) - len(last_word(line))]
            self._round = [before + each for each in found]
            self._offer(found)
            longer = self._round[0]
        self._put(longer)

    def _go_back(self, lines: int) -> None:
        """Go to an earlier line that begins like the one being typed, or to a later one."""
        if self._back == 0:
            self._typed = self.value
        begun = [line for line in reversed(self._past) if line.startswith(self._typed)]
        self._back = max(0, min(self._back + lines, len(begun)))
        self._put(begun[self._back - 1] if self._back else self._typed)

    def _put(self, line: str) -> None:
        self.value = line
        self.cursor_position = len(line)

    def on_input_changed(self, event: Input.Changed) -> None:
        """Pass the present text on."""
        event.stop()
        if self.active:
            self._when_typed(event.value)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """End with the typed line."""
        event.stop()
        self._close(event.value)
