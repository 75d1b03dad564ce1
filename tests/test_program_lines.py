"""The output of several processes, a line at a time with the rank in front."""

import io

import pytest

from gputui.runs import program_run
from gputui.runs.program_run import Lines


def written(*pieces: bytes) -> tuple[bytes, list[str]]:
    target, noted = io.BytesIO(), list[str]()
    lines = Lines(target, b"3 | ", noted.extend)
    for piece in pieces:
        lines.write(piece)
    lines.finish()
    return target.getvalue(), noted


def test_a_line_that_comes_in_pieces_is_whole() -> None:
    long = b"x" * 2**20
    said, noted = written(*[long[at : at + 2**16] for at in range(0, 2**20, 2**16)], b"\na\nb")
    assert said == b"3 | " + long + b"\n3 | a\n3 | b\n"
    assert noted == [long.decode(), "a", "b"]
    assert written(b"a", b"\n", b"\nb\n") == (b"3 | a\n3 | \n3 | b\n", ["a", "", "b"])


def test_a_line_that_does_not_end_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program_run, "LONGEST_LINE", 5)
    assert written(b"1234", b"56", b"78")[0] == b"3 | 123456\n3 | 78\n"


def test_a_progress_bar_is_not_kept_for_long() -> None:
    bar = b"\r 50 %" * 2**13
    assert written(bar, bar)[0] == b"3 | " + 2 * bar + b"\n"
    assert written(bar, bar, b"\r 51 %")[0].count(b"3 | ") == 2
