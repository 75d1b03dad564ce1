"""Questions at a real terminal: answered, interrupted, ended, and never shown where secret."""

import fcntl
import io
import os
import pty
import select
import subprocess
import sys
import termios
from collections.abc import Iterator

import pytest

BOUND_S = 30.0
ASKING = """
import sys
from gputui.cli.terminal import ask_here
from gputui.cli.terminal import interrupt_on_signals, run_until_interrupted
from gputui.fleet.stages import Question
interrupt_on_signals()
try:
    kind, secret = sys.argv[1:]
    question = Question(kind, "Sure?", secret == "secret")
    print("answer:", run_until_interrupted(ask_here(question)))
except KeyboardInterrupt:
    sys.exit(130)
"""


class Asked:
    """A process that asks, and the terminal at which it does."""

    def __init__(self, kind: str, secret: str) -> None:
        ours, its = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-c", ASKING, kind, secret],
            stdin=its,
            stdout=its,
            stderr=its,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        self.its = its
        self.terminal = io.FileIO(ours, "r+b")
        self.seen = b""
        self.until(b": ")

    def until(self, words: bytes) -> None:
        while words not in self.seen:
            ready, _, _ = select.select([self.terminal], [], [], BOUND_S)
            assert ready, self.seen
            self.seen += self.terminal.read(1000) or b""

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self.terminal.close()
        os.close(self.its)

    @property
    def echoes(self) -> bool:
        return bool(termios.tcgetattr(self.its)[3] & termios.ECHO)


@pytest.fixture
def asked(request: pytest.FixtureRequest) -> Iterator[Asked]:
    one = Asked(*request.param)
    yield one
    one.close()


@pytest.mark.parametrize("asked", [("host-key", ""), ("password", "secret")], indirect=True)
def test_ctrl_c_ends_a_question_at_once_and_gives_the_echo_back(asked: Asked) -> None:
    asked.terminal.write(b"\x03")
    assert asked.process.wait(BOUND_S) == 130
    assert asked.echoes


@pytest.mark.parametrize("asked", [("host-key", "")], indirect=True)
@pytest.mark.parametrize(
    ("typed", "answer"),
    [(b"y\n", b"yes"), (b"YES\n", b"yes"), (b"\n", b"None"), (b"no\n", b"None")],
)
def test_a_host_key_is_accepted_by_a_yes_alone(asked: Asked, typed: bytes, answer: bytes) -> None:
    assert b"Sure? [y/N]: " in asked.seen
    asked.terminal.write(typed)
    asked.until(b"answer: " + answer)


@pytest.mark.parametrize("asked", [("password", "secret")], indirect=True)
def test_a_password_is_not_shown(asked: Asked) -> None:
    assert not asked.echoes
    asked.terminal.write(b"open sesame\n")
    asked.until(b"answer: open sesame")
    assert asked.seen.count(b"open sesame") == 1
    assert asked.process.wait(BOUND_S) == 0
    assert asked.echoes


@pytest.mark.parametrize("asked", [("code", "")], indirect=True)
def test_ctrl_d_is_no_answer(asked: Asked) -> None:
    asked.terminal.write(b"\x04")
    assert asked.process.wait(BOUND_S) == 1
    asked.until(b"Abort")
