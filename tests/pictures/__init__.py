"""Pictures of the screen: built snapshots, a fixed clock, one command: `python -m tests.pictures`.

The same builders make the pictures of the README and those that the tests compare with.
"""
