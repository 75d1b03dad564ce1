"""The pictures of every size and theme are what the screen shows now; the film is whole.

And how many keys until a screen of 80×24 holds the answer: the table of the README.
"""

import asyncio
import re
from xml.dom import minidom

import pytest
import textual

from gputui.tui.app import ScreenApp
from tests.pictures.cast import MOST_BYTES
from tests.pictures.lab import START, Lab, LabConnection
from tests.pictures.scenes import FOLDER, SCENES, Scene, draw
from tests.tui.still import Driven

PINNED = "8.2.8"


@pytest.mark.slow
@pytest.mark.skipif(textual.__version__ != PINNED, reason=f"drawn under Textual {PINNED}")
@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.name)
async def test_a_picture_is_current(scene: Scene) -> None:
    drawn = (await draw(scene)).svg
    kept = scene.path.read_text(encoding="utf-8")
    assert drawn == kept, f"{scene.path.name} is old: python -m tests.pictures {scene.name}"


def test_the_film_is_an_svg_of_about_fifteen_seconds_whose_rows_all_exist() -> None:
    svg = (FOLDER / "cast.svg").read_text(encoding="utf-8")
    minidom.parseString(svg)
    assert len(svg.encode()) <= MOST_BYTES and "<script" not in svg
    seconds = re.search(r"animation:film ([\d.]+)s", svg)
    assert seconds and 12 <= float(seconds[1]) <= 18
    assert set(re.findall(r'href="#(\w+)"', svg)) <= set(re.findall(r'<g id="(\w+)"', svg))
    assert "SIMULATED" in svg or "hosts.txt" in svg


SECONDS = 12
WORKING, DOING, WRONG, GETTING_ON, TO_DO = (
    "is it working?",
    "what is each GPU doing?",
    "what is wrong, and where?",
    "is my computation getting on?",
    "what can I do about it?",
)
ONE = {
    WORKING: ((), ("● running", "hosts 1/1", "workers 1/1")),
    DOING: ((), ("gpu0 ● busy", "%", "UTIL 9", "MEM 5", "POWER 5", "TEMP 6", "task   dot")),
    WRONG: ((), ("hosts 1/1  workers 1/1  tasks",)),
    GETTING_ON: (("6",), ("● running", "2%", "✔ done", "✖ failed")),
    TO_DO: (("question_mark",), (":zoom-in", "esc closes")),
}
THOUSAND = {
    WORKING: ((), ("● running", "hosts 123/125", "workers 979/983")),
    DOING: ((), ("heat zoom", "node-001–022 [! ]!  ■ ", "UTIL  0 ▇▇▇▇▇▇▇▇ 100 %")),
    WRONG: ((), ("!27 alarms", "✖ node-010 and 1 more  host key of", "! lists all")),
    GETTING_ON: (("6",), ("● running", "2%", "✔ done", "✖ failed")),
    TO_DO: (("question_mark",), (":zoom-in", "esc closes")),
}


@pytest.mark.parametrize("gpus", [1, 1000])
async def test_five_questions_are_answered_with_at_most_one_key_each(gpus: int) -> None:
    link = LabConnection(Lab(gpus), SECONDS)

    async def open_connection() -> LabConnection:
        return link

    on = Driven()
    on.app = ScreenApp(open_connection, clock=lambda: START + SECONDS)
    async with on.showing():
        await asyncio.wait_for(link.said.wait(), 60)
        for keys, texts in (ONE if gpus == 1 else THOUSAND).values():
            await on.press([*keys], *texts)
            assert len(keys) <= 1
            await on.pilot.press(*("escape", "1") if keys else ())
