"""`python -m gputui`, the same as the command `gputui`."""

from gputui.cli import main

if __name__ == "__main__":
    main()
