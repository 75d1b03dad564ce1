"""What opens over the screen: questions, the run form, lists, the palette, the help."""

from importlib import import_module


def prepare() -> None:
    """Import the dialogs, and look for presets of other packages."""
    for name in ("questions", "run", "finder", "help"):
        import_module(f"{__name__}.{name}")
    import_module("gputui.presets.registry").names()
