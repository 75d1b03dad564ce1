"""`help`: the topics of `gputui/help`, on a terminal drawn by Rich, else as plain Markdown."""

import sys
from difflib import get_close_matches
from pathlib import Path

from gputui.errors import UsageError

FOLDER = Path(__file__).parents[1] / "help"
WIDTH = 100


def topics() -> dict[str, str]:
    """Return each topic with its title."""
    return {
        path.stem: path.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
        for path in sorted(FOLDER.glob("*.md"))
    }


def show_help(topic: str | None) -> int:
    """Print a topic, or the list of topics; raises UsageError for one that does not exist."""
    found = topics()
    if topic is None:
        width = max(map(len, found))
        print("\n".join(f"{name:<{width}}  {title}" for name, title in found.items()))
        print("\ngputui help TOPIC shows one; gputui COMMAND --help its options", file=sys.stderr)
        return 0
    if topic not in found:
        near = get_close_matches(topic.lower(), found, 1, 0.4)
        hint = f"did you mean {near[0]}?" if near else f"topics are {', '.join(found)}"
        raise UsageError(f"no help topic {topic!r}; {hint}")
    text = (FOLDER / f"{topic}.md").read_text(encoding="utf-8")
    if sys.stdout.isatty():
        _draw(text)
    else:
        print(text, end="")
    return 0


def _draw(text: str) -> None:
    """Draw Markdown on this terminal, through a pager where it is longer than a page."""
    import click
    from rich.console import Console
    from rich.markdown import Markdown

    console = Console()
    console.width = min(console.width, WIDTH)
    with console.capture() as captured:
        console.print(Markdown(text))
    drawn = captured.get()
    if drawn.count("\n") < console.height:
        click.echo(drawn, nl=False)
    else:
        click.echo_via_pager(drawn)
