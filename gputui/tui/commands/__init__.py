"""The screen's commands: their registry, and their functions."""
