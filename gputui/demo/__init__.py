"""Simulated hosts, GPUs and tasks: `--demo`, the README's pictures, tests and benchmarks.

`Simulator` is a cluster as plain values: stepped by a clock that the caller passes, the same
for the same seed, changed by the same requests as a real one. `DemoLink` shows it to a frontend as
a head would; `python -m gputui.demo` serves it on a socket. Nothing here reaches any machine.
"""

from gputui.demo.link import DemoLink
from gputui.demo.simulator import Shape, Simulator

__all__ = ["DemoLink", "Shape", "Simulator"]
