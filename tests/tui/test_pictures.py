"""The pictures of the README and of every size and theme are what the screen shows now."""

import pytest
import textual

from tests.pictures.scenes import SCENES, Scene, draw

PINNED = "8.2.8"


@pytest.mark.slow
@pytest.mark.skipif(textual.__version__ != PINNED, reason=f"drawn under Textual {PINNED}")
@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.name)
async def test_a_picture_is_current(scene: Scene) -> None:
    drawn = (await draw(scene)).svg
    kept = scene.path.read_text(encoding="utf-8")
    assert drawn == kept, f"{scene.path.name} is old: python -m tests.pictures {scene.name}"
