"""The pictures of every size and theme are what the screen shows now; the film is whole."""

import re
from xml.dom import minidom

import pytest
import textual

from tests.pictures.cast import MOST_BYTES
from tests.pictures.scenes import FOLDER, SCENES, Scene, draw

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
