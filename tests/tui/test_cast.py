"""The film in `screenshots/`: small enough for a page, and made of frames that are there."""

import re
from xml.dom import minidom

from tests.pictures.cast import MOST_BYTES
from tests.pictures.scenes import FOLDER


def test_the_film_is_an_svg_of_about_fifteen_seconds_whose_rows_all_exist() -> None:
    svg = (FOLDER / "cast.svg").read_text(encoding="utf-8")
    minidom.parseString(svg)
    assert len(svg.encode()) <= MOST_BYTES and "<script" not in svg
    seconds = re.search(r"animation:film ([\d.]+)s", svg)
    assert seconds and 12 <= float(seconds[1]) <= 18
    assert set(re.findall(r'href="#(\w+)"', svg)) <= set(re.findall(r'<g id="(\w+)"', svg))
    assert "SIMULATED" in svg or "hosts.txt" in svg
