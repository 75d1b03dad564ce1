"""Hosts whose clock is off, and hosts that write what terminals obey."""

from pathlib import Path

import pytest

from gputui.errors import HostError
from gputui.fleet.checks import Finding, Verdict
from gputui.fleet.doctor import report
from gputui.fleet.stages import Question, Stages
from gputui.model.snapshot import HostState as S
from tests.fleet.conftest import Reach

EVIL = "\x1b]0;owned\x07\x1b[2J\u202e"


def clock_off_by(folder: Path, seconds: float) -> dict[str, str]:
    """Return the environment of a host whose Python finds another time."""
    (folder / "sitecustomize.py").write_text(
        f"import time\nreal = time.time\ntime.time = lambda: real() + {seconds}\n"
    )
    return {"PYTHONPATH": str(folder)}


@pytest.mark.parametrize(
    ("days", "words"), [(2, "its clock is 2 days, 0:0"), (-400, "its clock is 399 days, 23:5")]
)
async def test_a_clock_that_is_more_than_a_day_off_is_refused_with_the_offset(
    reach: Reach, days: int, words: str
) -> None:
    host = await reach(environ=clock_off_by(reach.folder, days * 86400 + 60))
    assert host.state is S.FAILED
    assert words in host.status.reason
    assert "NTP" in host.status.hint


async def test_a_clock_that_is_an_hour_off_works_with_a_warning(reach: Reach) -> None:
    host = await reach(environ=clock_off_by(reach.folder, -7200))
    assert host.state is S.READY
    assert any("its clock is 2:00:0" in warning for warning in host.status.warnings)


async def test_what_a_host_writes_cannot_steer_a_terminal(reach: Reach) -> None:
    host = await reach(shell=("/bin/sh", "-c", f"printf '%s\\n' '{EVIL}gone'; exit 9", "sh"))
    assert "gone" in host.status.reason
    assert "".join((host.status.reason, *host.status.stderr_tail)).isprintable()


async def test_prompts_of_a_server_cannot_steer_a_terminal() -> None:
    asked: list[Question] = []

    async def ask(question: Question) -> None:
        asked.append(question)

    stages = Stages("gpu-a", 1, ask=ask)
    await stages.ask(Question("password", f"me@gpu-a: {EVIL}Password:", True))
    assert asked[0].text.isprintable() and "Password:" in asked[0].text


def test_errors_and_reports_hold_no_terminal_codes() -> None:
    error = HostError("gpu-a", S.PROBING, EVIL, hint=EVIL, stderr_tail=(EVIL,))
    assert str(error).replace("\n", "").isprintable()
    finding = Finding("gpu-a", "python", Verdict.BAD, EVIL, EVIL)
    assert report([finding]).replace("\n", "").isprintable()
