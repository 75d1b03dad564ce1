"""Draw the screen on this machine's own GPUs while they compute: `python -m tests.pictures.real`.

Writes `screenshots/real.svg` and `.png`. Unlike the other pictures it cannot be drawn again to
the byte, so no test compares it.
"""

import asyncio
import sys

from gputui import GPUCluster
from gputui.client.head_connection import HeadConnection
from gputui.protocol.connection_file import find_cluster
from gputui.tui.app import ScreenApp
from tests.pictures.raster import write_png
from tests.pictures.scenes import FOLDER, Picture

NAME = "real"
SIZE = (120, 30)
WARM_UP_S = 12.0
"""How long the screen watches before it is drawn: the histories fill."""
COMMANDS = (
    ("random-sum", "size=1000000"),
    ("svd", "rows=4000000"),
    ("random-sum", "size=1000000"),
)


async def draw() -> Picture:
    """Return the fleet's picture while runs follow each other."""
    app = ScreenApp(open_connection)
    async with app.run_test(size=SIZE) as pilot:
        work = asyncio.create_task(_work())
        await asyncio.sleep(WARM_UP_S)
        await pilot.pause()
        picture = Picture.of(app, f"gputui attach {NAME}")
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
    return picture


async def open_connection() -> HeadConnection:
    return await HeadConnection.open(find_cluster(NAME).socket, frontend="screen", snapshots=True)


async def _work() -> None:
    while True:
        for preset, parameter in COMMANDS:
            run = ("--attach", NAME, "--run", preset, "-p", parameter, "--quiet")
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "gputui", *run), stdout=asyncio.subprocess.DEVNULL
            )
            try:
                await process.wait()
            except asyncio.CancelledError:
                process.terminate()
                await process.wait()
                raise


if __name__ == "__main__":
    with GPUCluster(name=NAME):
        picture = asyncio.run(draw())
    path = FOLDER / f"{NAME}.svg"
    path.write_text(picture.svg, encoding="utf-8")
    write_png(picture.lines, picture.colours, path.with_suffix(".png"))
    print(path)
