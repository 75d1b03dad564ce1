"""The version of this gputui, here and nowhere else: the packages are built with it, too.

In a module of its own: nothing imports the whole package for it.
"""

__version__ = "0.3.0.dev0"
