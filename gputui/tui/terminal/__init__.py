"""Textual's way to the terminal, and the parts of Textual that it uses without being promised them.

`driver` reads keys and pastes, and writes; `cells` finds the cells of a frame that changed. Nothing
else in this package's parent touches what Textual keeps to itself. A release of Textual in which
one of these is gone is refused with a sentence, before anything is drawn.
"""

from importlib import import_module, metadata

from gputui.errors import GputuiError

PRIVATE = (
    "textual._xterm_parser:BRACKETED_PASTE_START",
    "textual._xterm_parser:BRACKETED_PASTE_END",
    "textual._xterm_parser:XTermParser.feed",
    "textual._xterm_parser:XTermParser.tick",
    "textual.drivers.linux_driver:LinuxDriver._get_terminal_size",
    "textual.drivers.linux_driver:LinuxDriver.run_input_thread",
    "textual.drivers.linux_driver:LinuxDriver.start_application_mode",
    "textual.drivers.linux_driver:LinuxDriver.process_message",
    "textual.drivers.linux_driver:LinuxDriver.write",
)
"""Names below a module, by import."""
ATTRIBUTES = ("_app", "_file", "_loop", "exit_event", "fileno")
"""What an instance of the driver has."""


def require(names: tuple[str, ...] = PRIVATE) -> None:
    """Raise GputuiError where this release of Textual lacks one of these."""
    for name in names:
        module, _, path = name.partition(":")
        try:
            found = import_module(module)
            for part in path.split("."):
                found = getattr(found, part)
        except (ImportError, AttributeError):
            refuse(name)


def refuse(name: str) -> None:
    """Raise GputuiError because of a part of Textual that is gone."""
    raise GputuiError(
        f"Textual {metadata.version('textual')} has no {name}, which the screen draws with; "
        "install the release that it was tested with: pip install 'textual==8.2.*'"
    )
