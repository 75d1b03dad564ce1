"""What each release wrote, recorded from it: a connection file, a head's answers, a run's record.

`python -m tests.releases FOLDER RUNTIME` is that release's head as far as a later one can tell: it
holds the name, answers as recorded, and ends by SIGTERM.
"""

from pathlib import Path

RELEASES = sorted(path for path in Path(__file__).parent.iterdir() if (path / "run.json").exists())
