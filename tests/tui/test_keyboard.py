"""What a terminal sends → keys and pastes; a paste never runs as keys."""

import time
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from textual.constants import ESCAPE_DELAY
from textual.events import Key, Paste
from textual.message import Message

from gputui.tui.terminal import END, LONGEST, LOST_S, QUIET_S, START, Input


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
