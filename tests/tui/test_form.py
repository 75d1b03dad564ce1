"""A preset's form: what of it is sent, and whether it would fit."""

from gputui import presets
from gputui.presets import Machine
from gputui.tui.dialogs.run import Form, fits, memory_text

MACHINE = Machine("cupy", workers=8, threads=8, smallest_bytes=10 * 2**30)


def form(**texts: str) -> Form:
    """Return the form of svd with these texts typed."""
    made = Form(presets.get("svd"), MACHINE)
    for name, text in texts.items():
        made = made.typed(name, text)
    return made


def test_only_what_differs_from_the_default_is_sent() -> None:
    assert form(rows="20000", cols="1000").parameters() == (("rows", "20000"),)
    assert form(cols="5").typed("cols", "1000").parameters() == ()


def test_an_estimate_says_whether_it_fits_and_what_to_change() -> None:
    assert fits(form(rows="1e5", cols="10").memory(), MACHINE)
    large = form(rows="1e9", chunk_rows="1e9").memory()
    assert not fits(large, MACHINE)
    assert "too large; use chunk_rows" in memory_text(large, MACHINE)


def test_without_workers_or_with_mistakes_nothing_is_estimated() -> None:
    assert Form(presets.get("svd"), None).memory() is None
    assert form(rows="-1").memory() is None
