"""What the log of a run holds: that run, and nothing of those before it."""

from pathlib import Path

from tests.system.conftest import Command
from tests.system.lab import last_run, running_lab

lab = running_lab


def printing(folder: Path, words: str) -> str:
    """Write a preset of which every worker prints words, and return its name."""
    path = folder / "prints.py"
    path.write_text(
        "from time import sleep\nfrom gputui.presets import Outcome, Preset\n"
        f"def say():\n    print('{words}')\n"
        "def compute(job):\n    said = job.each_worker(say)\n    job.each_worker(sleep, 1)\n"
        "    return Outcome({'said': len(said)})\n"
        "PRESET = Preset('prints', 'prints', (), compute)\n"
    )
    return f"{path}:PRESET"


def log_of(lab: Command, *arguments: str) -> str:
    """Run, and return the log."""
    done = lab("--run", *arguments, "--quiet")
    assert done.returncode == 0, done.stderr
    return Path(
        lab.folder / "state" / "gputui" / "runs" / last_run(lab)["id"] / "log.txt"
    ).read_text()


def test_a_log_begins_with_its_own_run_on_a_cluster_that_was_there_before(lab: Command) -> None:
    log_of(lab, printing(lab.folder, "said before"), "--attach", "lab")
    log = log_of(lab, printing(lab.folder, "said now"), "--attach", "lab")
    assert log.splitlines()[0].endswith("  starting")
    assert log.count("said now") == 2
    assert "said before" not in log
