"""`python -m gputui`, the same as the command `gputui`."""

from gputui.process.search_path import ignore_working_directory

ignore_working_directory()  # before anything else is imported

from gputui.cli import main  # noqa: E402

if __name__ == "__main__":
    main()
