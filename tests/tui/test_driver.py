"""Both ends of the terminal: keys and pastes come in, of what Textual writes changed cells go out.

A paste never runs as keys. The cells are sent to pyte's terminal, not to the screen's own work.
"""

import random
import time
from collections.abc import Iterable

import pyte
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len, set_cell_size
from textual.constants import ESCAPE_DELAY
from textual.events import Key, Paste
from textual.message import Message

from gputui.tui.terminal import END, LONGEST, LOST_S, QUIET_S, START, Input
from gputui.tui.terminal.cells import SYNC_END, SYNC_START, Cells


def typed(*chunks: str, pause_s: float = 0.0) -> list[Message]:
    """Return what is made of chunks that come one after the other, and of silence after that."""
    arriving, now, made = Input(), 0.0, []
    for chunk in chunks:
        made += [*arriving.feed(chunk, now), *arriving.tick(now)]
        now += pause_s
        time.sleep(pause_s)  # an escape is alone after a moment of the parser's own clock
    return made + silence(arriving)


def silence(arriving: Input) -> list[Message]:
    """Return what is made of silence: an escape is waited for by the parser's own clock."""
    made = [*arriving.tick(QUIET_S), *arriving.tick(1.0)]
    if not made:
        time.sleep(2 * ESCAPE_DELAY)
    return [*made, *arriving.tick(2.0)]


def keys(messages: Iterable[Message]) -> list[str]:
    return [message.key for message in messages if isinstance(message, Key)]


@settings(deadline=None)
@given(st.text(max_size=60), st.integers(1, 20))
def test_nothing_of_a_paste_is_a_key_however_it_is_cut(text: str, size: int) -> None:
    sent = f"{START}{text}{END}"
    made = typed(*(sent[at : at + size] for at in range(0, len(sent), size)))
    assert keys(made) == []
    [paste] = [message for message in made if isinstance(message, Paste)]
    assert paste.text == text.replace(END, "").replace("\x00", "").replace("\x1b", "")


def test_keys_around_a_paste_are_keys() -> None:
    assert keys(typed("ab\x1b[A" + START + "x" + END)) == ["a", "b", "up"]
    arriving = Input()
    assert not list(arriving.feed(f"{START}x{END}", 0.0))
    assert [type(each) for each in arriving.tick(QUIET_S)] == [Paste]
    assert keys(arriving.feed("q", 1.0)) == ["q"]


def test_an_escape_alone_is_a_key_after_a_moment() -> None:
    arriving = Input()
    assert keys([*arriving.feed("\x1b", 0.0), *silence(arriving)]) == ["escape"]


@pytest.mark.parametrize("pause_s", [0.0, 0.01, ESCAPE_DELAY * 1.5])
def test_a_key_right_behind_an_escape_is_a_key(pause_s: float) -> None:
    assert keys(typed("\x1b1")) == ["escape", "1"]
    assert keys(typed("\x1b", "6", pause_s=pause_s)) == ["escape", "6"]
    assert keys(typed("\x1b", "\x1b", "q", pause_s=pause_s)) == ["escape", "escape", "q"]


def test_an_arrow_that_comes_in_pieces_is_an_arrow() -> None:
    assert keys(typed("\x1b", "[A", pause_s=0.01)) == ["up"]
    assert keys(typed("\x1b\x1b[B")) == ["escape", "down"]


def test_a_paste_without_an_end_ends_with_silence() -> None:
    arriving = Input()
    assert not list(arriving.feed(f"{START}abc", 0.0))
    assert not list(arriving.tick(LOST_S - 1))
    [paste] = arriving.tick(LOST_S)
    assert isinstance(paste, Paste) and paste.text == "abc"


def test_a_megabyte_costs_next_to_nothing_and_is_cut() -> None:
    arriving, began = Input(), time.process_time()
    sent = START + "x\x1b[" * 350_000 + END
    for at in range(0, len(sent), 4096):
        assert not list(arriving.feed(sent[at : at + 4096], 0.0))
    [paste] = arriving.tick(QUIET_S)
    assert isinstance(paste, Paste) and len(paste.text) == LONGEST
    assert time.process_time() - began < 0.2


WIDTH, HEIGHT = 24, 6
STYLES = ("", "1", "2", "31", "1;38;2;0;128;255;48;2;9;9;9", "48;2;9;9;9", "7;31", "2;4;32;45")
SIZE = (10, 3)
FRAME = "\x1b[1;1Hbusy\x1b[1;1H"
UNREAD = "\x1b[2;1Ha\tb\x1b[1;1H"
TEXTS = ("busy", "  ", "98▇", "名古屋", "⣿⣿⡇", "e\u0301t", "●")


def terminal() -> tuple[pyte.Screen, pyte.Stream]:
    screen = pyte.Screen(WIDTH, HEIGHT)
    screen.reset_mode(pyte.modes.DECAWM)
    return screen, pyte.Stream(screen)


def shown(screen: pyte.Screen) -> list[list[pyte.screens.Char]]:
    return [[screen.buffer[y][x] for x in range(WIDTH)] for y in range(HEIGHT)]


def blank() -> str:
    return "\n".join(f"\x1b[{y + 1};1H" + " " * WIDTH for y in range(HEIGHT)) + "\x1b[1;1H"


def frame(rng: random.Random) -> str:
    """Return what Textual would write for some changed lines."""
    chosen = sorted(rng.sample(range(HEIGHT), rng.randint(1, HEIGHT)))
    return "\n".join(line(y, rng) for y in chosen) + "\x1b[1;1H"


def line(y: int, rng: random.Random) -> str:
    pieces, room = [f"\x1b[{y + 1};1H"], WIDTH
    while room:
        style, text = rng.choice(STYLES), set_cell_size(rng.choice(TEXTS), rng.randint(1, room))
        pieces.append(f"\x1b[{style}m{text}\x1b[0m" if style else text)
        room -= cell_len(text)
    return "".join(pieces)


@pytest.mark.parametrize("seed", range(40))
def test_a_terminal_shows_the_same_as_if_it_got_whole_frames(seed: int) -> None:
    rng = random.Random(seed)
    cells = Cells(WIDTH, HEIGHT)
    (whole, to_whole), (changed, to_changed) = terminal(), terminal()
    for step in range(30):
        made = frame(rng) if step else blank()
        to_whole.feed(made)
        assert cells.take(made)
        to_changed.feed(cells.changes())
        assert shown(changed) == shown(whole), f"step {step}"


def test_only_the_cell_that_changed_is_sent() -> None:
    cells = Cells(WIDTH, HEIGHT)
    cells.take("\x1b[3;2H\x1b[31mutil 97\x1b[0m\x1b[1;1H")
    cells.changes()
    cells.take("\x1b[3;2H\x1b[31mutil 98\x1b[0m\x1b[1;1H")
    assert cells.changes() == "\x1b[0;31m\x1b[3;8H8\x1b[m\x1b[1;1H"


def test_a_colour_is_said_once_however_many_places_it_is_in() -> None:
    cells = Cells(WIDTH, HEIGHT)
    cells.take("\x1b[1;1H\x1b[31ma\x1b[0mb\x1b[31mc\x1b[0m\n\x1b[2;1H\x1b[31md\x1b[0me\x1b[1;1H")
    assert cells.changes().count("\x1b[0;31m") == 1


def through(cells: Cells, *written: str) -> str:
    return "".join(cells.let_through(data, SIZE) for data in written)


def test_a_frame_is_sent_between_its_marks_and_nothing_for_one_that_changes_nothing() -> None:
    cells = Cells()
    sent = through(cells, SYNC_START, FRAME, SYNC_END)
    assert sent.startswith(SYNC_START + "\x1b[") and sent.endswith(SYNC_END)
    assert through(cells, SYNC_START, FRAME, SYNC_END) == ""


@pytest.mark.parametrize(
    "data",
    ["\x1b[?1004h", "\x1b[>25u", "\x1b[?2026$p", "\x1b]52;c;Zm9v\x07", "\x1b]2;t\x1b\\", "\x07"],
)
def test_what_shows_nothing_passes_and_changes_nothing(data: str) -> None:
    cells = Cells()
    through(cells, FRAME)
    assert through(cells, data) == data
    assert through(cells, FRAME) == ""


@pytest.mark.parametrize("data", [UNREAD, "\x1b[2J", "text"])
def test_after_what_cannot_be_followed_every_cell_is_sent(data: str) -> None:
    cells = Cells()
    through(cells, FRAME)
    assert through(cells, data) == data
    assert "busy" in through(cells, FRAME)


def test_another_size_and_one_that_came_back_send_every_cell() -> None:
    cells = Cells()
    through(cells, FRAME)
    assert "busy" in cells.let_through(FRAME, (9, 3))
    cells.forget()
    assert "busy" in cells.let_through(FRAME, (9, 3))
