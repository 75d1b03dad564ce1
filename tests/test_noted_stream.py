"""What a preset prints, as its run's log has it."""

import io
import sys
from pathlib import Path

import cloudpickle
import pytest

from gputui import runs
from gputui.model.snapshot import RunState
from gputui.runs.preset_run import LONGEST, NotedStream
from gputui.runs.records import MOST_LOG_BYTES


class Both:
    """A noted stream, what it wrote, and what it noted."""

    def __init__(self) -> None:
        self.written = io.StringIO()
        self.noted: list[str] = []
        self.stream = NotedStream(self.written, lambda *lines: self.noted.extend(lines))


@pytest.mark.parametrize(
    ("texts", "noted"),
    [
        (("a\nb", "c\n", "d"), ["a", "bc", "d"]),
        (("a\r\n", "b\r", "\n"), ["a", "b"]),
        (("10 %\r", "20 %\r", "done\n"), ["done"]),
        (("\r10 %", "\r2", "0 %"), ["20 %"]),
        (("10 %\rdone\nnext\rlast\n",), ["done", "last"]),
        (("", "\n"), [""]),
    ],
)
def test_lines_are_noted_as_a_terminal_shows_them(texts: tuple[str, ...], noted: list[str]) -> None:
    both = Both()
    for text in texts:
        both.stream.write(text)
    both.stream.finish()
    assert (both.noted, both.written.getvalue()) == (noted, "".join(texts))


def test_a_line_without_an_end_is_bounded() -> None:
    both = Both()
    for _ in range(3):
        both.stream.write("x" * LONGEST)
    both.stream.finish()
    assert both.noted == ["x" * LONGEST]


def test_in_a_task_it_is_the_output_there() -> None:
    assert cloudpickle.loads(cloudpickle.dumps(Both().stream)) is sys.stdout


def test_it_is_the_stream_in_all_else() -> None:
    stream = NotedStream(sys.__stdout__, print)
    for name in ("encoding", "errors", "isatty", "fileno", "writable"):
        assert getattr(stream, name) == getattr(sys.__stdout__, name)


@pytest.mark.parametrize("letter", "x€")
def test_how_a_run_ended_is_in_a_log_that_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, letter: str
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    record = runs.new_record("svd", {}, backend="auto", hosts="", version="0")
    run = runs.Recording(record, pytest.fail)
    run.note(letter * (MOST_LOG_BYTES // 2))
    run.note(letter * (MOST_LOG_BYTES + 1))
    for number in range(200):
        run.note(f"line {number}")
    run.end(RunState.CANCELLED)
    assert record.log.stat().st_size < MOST_LOG_BYTES + 2**17
    said = [line.partition("  ")[2] for line in record.log.read_text().splitlines()]
    full = said.index("this log is full: only its last lines follow")
    assert said[full + 1 :] == [*(f"line {number}" for number in range(100, 200)), "cancelled"]
