"""Draw what a notebook shows: `python -m tests.notebook [GPUS] [THEME] [PICTURE]`.

It writes `review.png`; the README's picture is `8 light screenshots/notebook.png`.
"""

import os
import sys
import tempfile
from pathlib import Path

from tests.notebook.lab import gpus, jupyterlab, page, run, write_notebook

CELLS = (
    "from gputui import GPUCluster\n"
    "cluster = GPUCluster('localhost nthreads=1 memory=1GiB', name='lab', workers=8)\n"
    "cluster",
    "cluster.run('mean', rows=200_000, cols=8, backend='numpy')",
    "cluster.run('svd', rows=20_000, cols=50, backend='numpy')",
    "cluster.run('random-sum', size=100_000, backend='numpy')",
)
MOST_MS = 300_000
HALF_DONE = "parseFloat(document.querySelector('.run.is-running .bar > div')?.style.width) > 20"
PART = {"x": 34, "y": 92, "width": 1112, "height": 536}
"""Of the page: the first cell."""


def main(number: int = 8, theme: str = "light", picture: str = "review.png") -> None:
    """Open a notebook, run its cells, and take a picture while the last one computes."""
    with tempfile.TemporaryDirectory(prefix="gt-") as name:
        folder = Path(name)
        os.environ |= {"XDG_RUNTIME_DIR": name, "XDG_STATE_HOME": f"{name}/state"}
        write_notebook(folder / "fleet.ipynb", CELLS)
        with (
            gpus(folder, number) as env,
            jupyterlab(folder, env, theme) as url,
            page(folder, url, "fleet.ipynb") as shown,
        ):
            run(shown, "notebook:run-all-cells")
            try:
                shown.wait_for_selector(".run.is-running :text('random-sum')", timeout=MOST_MS)
                shown.wait_for_function(HALF_DONE, timeout=MOST_MS)
            finally:
                shown.screenshot(path=picture, clip=PART)


if __name__ == "__main__":
    main(*(int(word) if word.isdecimal() else word for word in sys.argv[1:]))
