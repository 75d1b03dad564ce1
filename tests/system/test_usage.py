"""Wrong words: exit 2, everything said at once, nothing started, no traceback."""

from pathlib import Path

import pytest

from tests.system.conftest import Command


def test_three_mistakes_in_a_hosts_file_are_named_at_once(gputui: Command, tmp_path: Path) -> None:
    hosts = tmp_path / "hosts.txt"
    hosts.write_text("a gpu=0\nb\nc memory=much\nd:port\n")
    done = gputui(str(hosts), "--run", "svd")
    assert done.returncode == 2
    assert [f"hosts.txt:{line}:" in done.stderr for line in (1, 3, 4)] == [True] * 3
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--run", "svdd"), "did you mean 'svd'?"),
        (("--run", "svd", "-p", "row=3"), "did you mean 'rows'"),
        (("--run", "svd", "-p", "rows=0"), "must be an integer of at least 1"),
        (("--run", "svd", "-p", "rows"), "write key=value"),
        (("--run", "svd", "--backend", "jax"), "is not one of"),
        (("nowhere.txt", "--run", "svd"), "there is no such file"),
        (("--nonsense",), "No such option"),
        (("--attach", "x", "hosts", "--run", "svd"), "not both"),
        ((), "the screen needs a terminal"),
        (("down", "nothing"), "no cluster is called 'nothing'"),
    ],
)
def test_a_wrong_word_is_exit_2_with_what_to_write(
    gputui: Command, arguments: tuple[str, ...], says: str
) -> None:
    done = gputui(*arguments)
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
