"""A plain Python file on a cluster: run as `python` would run it, and its `Client()` finds it.

`--run SCRIPT.py` starts `python -m gputui.runs.script` with a `Handover` on a pipe. A process of
its own, because a script owns its process: its main thread and signals, `os._exit`, threads that
never end, a crash of a C library; none of these may take the hold on the cluster along.
"""

from gputui.runs.script.handover import Handover, security

__all__ = ["Handover", "security"]
