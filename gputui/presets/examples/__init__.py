"""Presets to read and to copy, in a folder of their own.

The folder of a preset's file is searched for modules before the installed ones, and that of
gputui's own has a torch.py and a polars.py.
"""
