"""Draw all pictures anew: `python -m tests.pictures [NAME…]`, the README's also as PNG."""

import asyncio
import sys

from tests.pictures.raster import write_png
from tests.pictures.scenes import FOLDER, README, SCENES, draw

if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    wanted = set(sys.argv[1:])
    for scene in SCENES:
        if not wanted or scene.name in wanted:
            picture = asyncio.run(draw(scene))
            scene.path.write_text(picture.svg, encoding="utf-8")
            if scene in README:
                write_png(picture.lines, picture.colours, scene.path.with_suffix(".png"))
            print(scene.path.name, flush=True)
