"""The version of this gputui, in a module of its own: nothing imports the whole package for it."""

__version__ = "0.2.0"
