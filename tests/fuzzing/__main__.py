"""`python -m tests.fuzzing hosts --minutes 60`: fuzz a target with atheris, guided by coverage.

The extra `fuzz` has atheris. Ends with the input that raised, in a file, where one does.
"""

import argparse
import sys

import atheris

with atheris.instrument_imports(include=["gputui"]):
    from tests.fuzzing.seeds import seeds
    from tests.fuzzing.targets import MEMORY_MB, TARGETS


def main() -> None:
    """Fuzz one target for so long."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzzing")
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("--minutes", type=float, default=60.0)
    options = parser.parse_args()
    target = TARGETS[options.target]
    arguments = [
        f"-max_total_time={int(options.minutes * 60)}",
        f"-max_len={target.most_bytes}",
        "-timeout=10",
        f"-rss_limit_mb={MEMORY_MB}",
    ]
    with seeds(options.target) as folder:
        atheris.Setup([sys.argv[0], *arguments, str(folder)], target)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
