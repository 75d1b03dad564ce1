"""Tune the garbage collector of a process that takes thousands of values each second."""

import gc

GARBAGE_AFTER = 50_000
"""Fresh values between two looks, 700 by default. A snapshot of a large cluster, or what its agents
read, is thousands of values that all live on for a second: to look at them over and over takes a
third of the screen's time, and a fifth of the head's."""


def look_rarely() -> None:
    """Collect garbage rarely, and never the objects that exist now, mostly modules."""
    gc.freeze()
    gc.set_threshold(GARBAGE_AFTER, *gc.get_threshold()[1:])
