"""The dialogs: questions, the run form, lists, the palette, the help."""

from importlib import import_module

from gputui.process.lifetime import look_rarely


def prepare() -> None:
    """Import the dialogs, look for presets of other packages, and never for garbage in all that."""
    for name in ("modal", "run", "help"):
        import_module(f"{__name__}.{name}")
    import_module("gputui.presets.registry").names()
    look_rarely()
