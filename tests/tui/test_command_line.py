"""The line that is typed into: completion with tab, history, filters with units."""

from pathlib import Path
from typing import Any

import pytest

from gputui.errors import UsageError
from gputui.model.slots import slots_of
from gputui.presets import registry
from gputui.protocol.frontend import StartRun
from gputui.tui.dialogs.run import RunDialog
from gputui.tui.filter import parse
from gputui.tui.rendering.fleet import FLEET_FIELDS, Look, Row
from tests.tui.build import GIB, device, host, snapshot, worker
from tests.tui.still import Still


def cluster(**options: Any) -> Still:
    here = host("h", device(0, memory_used_bytes=70 * GIB, power_w=650.0), device(1))
    return Still(snapshot(here, host("node-01"), workers=(worker(0), worker(1))), **options)


@pytest.mark.parametrize(
    ("typed", "line"),
    [
        ("scr", "screenshot "),
        ("run sv", "run svd "),
        ("run svd ro", "run svd rows="),
        ("run svd rows=5 col", "run svd rows=5 cols="),
        ("retire h:gpu1", "retire h:gpu1 "),
        ("retire node", "retire node-01 "),
        ("remove no", "remove node-01 "),
        ("restart al", "restart all "),
        ("theme oka", "theme okabe-ito "),
        ("screenshot some", "screenshot somewhere/"),
        ("exec ~no-such-user/x", "exec ~no-such-user/x"),
        ("nonsense x", "nonsense x"),
    ],
)
async def test_tab_completes_the_last_word_in_one_key(
    typed: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("somewhere").mkdir()
    Path("somewhere.svg").touch()
    async with cluster().showing("h:gpu0", size=(100, 30)) as on:
        await on.press(["colon", *typed, "tab"], then=lambda: on.app.prompt.value == line)
        assert on.app.prompt.has_focus


async def test_tab_goes_through_what_a_word_can_become_and_shows_all_of_it() -> None:
    async with cluster().showing("h:gpu0", size=(100, 30)) as on:
        await on.pilot.press("colon", *"retire h:", "tab")
        await on.until(lambda: on.app.prompt.value == "retire h:gpu")
        await on.press(["tab"], then=lambda: on.app.prompt.value == "retire h:gpu0")
        await on.sees("h:gpu0  h:gpu1")
        await on.press(["tab"], then=lambda: on.app.prompt.value == "retire h:gpu1")


async def test_tab_completes_fields_and_states_of_a_filter() -> None:
    async with cluster().showing("h:gpu0", size=(100, 30)) as on:
        await on.pilot.press("2", "slash", *"sta", "tab", *"id", "tab")
        await on.until(lambda: on.app.prompt.value == "state:idle ")
        await on.press([*"ex", "tab", "2", "enter"], "0 of 2 workers", "/state:idle executing>2")


async def test_what_was_typed_comes_back_with_up_in_a_later_session(tmp_path: Path) -> None:
    file = tmp_path / "screen.json"
    async with cluster(choices=file).showing("h:gpu0", size=(100, 30)) as on:
        for line in ("workers", "events"):
            await on.press(["colon", *line, "enter"], then=lambda line=line: on.app.current == line)
    async with cluster(choices=file).showing("h:gpu0", size=(100, 30)) as again:
        await again.press(["colon", "up", "up"], then=lambda: again.app.prompt.value == "workers")
        await again.press(["down", "enter"], then=lambda: again.app.current == "events")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("mem>20G", ["h:gpu0"]),
        ("mem > 80%", ["h:gpu0"]),
        ("mem>=1GiB mem<20G", ["h:gpu1"]),
        ("power>600W", ["h:gpu0"]),
        ("power > 0.6kW", ["h:gpu0"]),
        ("temp<80°C", ["h:gpu0", "h:gpu1"]),
        ("!mem>20G", ["h:gpu1"]),
    ],
)
def test_a_number_is_compared_with_the_unit_of_its_column(text: str, found: list[str]) -> None:
    matches = parse(text, FLEET_FIELDS)
    slots = [slot for slot in slots_of(cluster().snapshot) if slot.device]
    rows = [Row(slot.host, (slot,), Look(), slot) for slot in slots]
    assert [row.key for row in rows if matches(row)] == found


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("utli>20", "did you mean util?"),
        ("stat:idle", "did you mean state?"),
        ("stat=idle", "did you mean state?"),
        ("state=bsy", "did you mean busy?"),
        ("state:bsy", "did you mean busy?"),
        ("state>3", "state is a word"),
        ("power>600V", "a number must follow"),
    ],
)
def test_a_misspelling_in_a_filter_is_an_error_that_names_the_nearest(text: str, why: str) -> None:
    with pytest.raises(UsageError, match=why.replace("?", r"\?")):
        parse(text, FLEET_FIELDS)


@pytest.mark.parametrize(
    ("typed", "why"),
    [
        ("svdd", "did you mean 'svd'?"),
        ("slow.py", "a script runs in a terminal of its own"),
        ("./slow.py rows=5", "a script runs in a terminal of its own"),
        ("nofile.py:PRESET", "no such file"),
        ('"svd', "No closing quotation"),
    ],
)
async def test_a_run_that_is_misspelt_or_a_script_is_refused_and_opens_no_form(
    typed: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("slow.py").write_text("open('ran', 'w').close()")
    async with cluster().showing("h:gpu0", size=(100, 30)) as on:
        await on.press(["colon", *f"run {typed}", "enter"], why)
        await on.pilot.press("colon", *"run slow.py r", "tab")
        assert not isinstance(on.app.screen, RunDialog)
        assert not Path("ran").exists()


async def test_a_preset_in_a_file_is_edited_and_started_by_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    registry.write_new("edited", tmp_path)
    async with cluster().showing("h:gpu0", size=(120, 40)) as on:
        await on.press(["colon", *"run edited.py:PRESET", "enter"], "edited.py:PRESET", "norms")
        await on.press(["ctrl+r"], then=lambda: on.link.asked)
        place = f"{tmp_path}/edited.py:PRESET"
        assert on.link.asked == [StartRun(0, place, (), cwd=str(tmp_path))]


@pytest.mark.parametrize(
    ("typed", "why"),
    [
        ("logs h:gpu7", "logs: no h:gpu7; did you mean h:gpu"),
        ("logs h", "logs: no h; known: h:gpu0, h:gpu1"),
        ("fleet noode-01", "fleet: no noode-01; did you mean node-01?"),
        ("hosts x", "hosts: no x; known: h, node-01"),
        ("tasks h", "tasks: no h; known: h:gpu0"),
        ("runs x", "runs: no x"),
        ("device gpu9", "device: no gpu9; did you mean h:gpu"),
        ("users alice", "users: nothing is written after it: alice"),
    ],
)
async def test_a_view_is_not_asked_for_what_there_is_not(typed: str, why: str) -> None:
    async with cluster().showing("h:gpu0", size=(100, 30)) as on:
        await on.press(["4"], "no lines yet")
        await on.press(["colon", *typed, "enter"], why)
        assert on.app.current == "logs"


@pytest.mark.parametrize(
    ("typed", "why"),
    [
        ("--wait abc python x.py", "'abc' is not a span of time"),
        ("--memory-free 70 python x.py", "--memory-free 70: write its unit"),
        ("--send nope python x.py", "'nope' does not exist"),
        ("--pin foo python x.py", "'foo' is not one of"),
        ("--bogus x python x.py", "No such option"),
        ("--tty true", "No such option"),
        ("-n 0 python x.py", "0 is not in the range"),
        ("-n 3 --gpus-per-host 2 python x.py", "3 is no multiple of 2"),
        ("-n 2", "write the program"),
        ("--help", "No such option"),
    ],
)
async def test_a_programs_wrong_options_are_refused_where_they_are_typed(
    typed: str, why: str
) -> None:
    async with cluster().showing("h:gpu0", size=(100, 30)) as on:
        await on.press(["colon", *f"exec {typed}", "enter"], why)
        assert on.link.asked == []


async def test_a_folder_of_this_machine_is_not_sent_by_a_head_elsewhere() -> None:
    async with cluster().showing("h:gpu0", size=(100, 30)) as on:
        on.app.login = "me@x"
        await on.press(["colon", *"exec --send . python x.py", "enter"], "of another machine")
        assert on.link.asked == []


async def test_a_program_keeps_the_options_that_are_its_own() -> None:
    async with cluster().showing("h:gpu0", size=(100, 30)) as on:
        await on.press(["colon", *"exec --per gpu -n 2 python x.py --wait 3 -- y", "enter"])
        await on.until(lambda: bool(on.link.asked))
        typed = (("per", "gpu"), ("gpus", "2"), ("arguments", "python x.py --wait 3 -- y"))
        (asked,) = on.link.asked
        assert asked == StartRun(0, "exec:python", typed, cwd=str(Path.cwd()))
