"""Questions at a real terminal: answered, interrupted, ended, and never shown where secret."""

import sys
import termios
from collections.abc import Iterator

import pytest

from tests.terminals import Emulated

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


class Asked(Emulated):
    """A terminal at which a process asks."""

    @property
    def echoes(self) -> bool:
        return bool(termios.tcgetattr(self.terminal)[3] & termios.ECHO)


@pytest.fixture
def asked(request: pytest.FixtureRequest) -> Iterator[Asked]:
    one = Asked.start(sys.executable, "-c", ASKING, *request.param, env={})
    one.sees(": ")
    yield one
    one.kill()


@pytest.mark.parametrize("asked", [("host-key", ""), ("password", "secret")], indirect=True)
def test_ctrl_c_ends_a_question_at_once_and_gives_the_echo_back(asked: Asked) -> None:
    asked.type(b"\x03")
    assert asked.ended() == 130
    assert asked.echoes


@pytest.mark.parametrize("asked", [("host-key", "")], indirect=True)
@pytest.mark.parametrize(
    ("typed", "answer"),
    [(b"y\n", "yes"), (b"YES\n", "yes"), (b"\n", "None"), (b"no\n", "None")],
)
def test_a_host_key_is_accepted_by_a_yes_alone(asked: Asked, typed: bytes, answer: str) -> None:
    assert "Sure? [y/N]: " in asked.text
    asked.type(typed)
    asked.sees(f"answer: {answer}")


@pytest.mark.parametrize("asked", [("password", "secret")], indirect=True)
def test_a_password_is_not_shown(asked: Asked) -> None:
    assert not asked.echoes
    asked.type(b"open sesame\n")
    asked.sees("answer: open sesame")
    assert asked.text.count("open sesame") == 1
    assert asked.ended() == 0
    assert asked.echoes


@pytest.mark.parametrize("asked", [("code", "")], indirect=True)
def test_ctrl_d_is_no_answer(asked: Asked) -> None:
    asked.type(b"\x04")
    asked.sees("Abort")
    assert asked.ended() == 1
