"""What the screen asks a person, and when: questions of the head, dialogs, a line to type into."""

import pytest
from textual.events import Key

from gputui.protocol.frontend import Answer, Asked, Previewed, Stop
from gputui.tui import dialogs
from gputui.tui.dialogs import Modal, QuestionDialog
from tests.tui.build import device, host, snapshot, worker
from tests.tui.still import Still

HOST_KEY = Asked(7, "gpu-b", "host-key", "ED25519 SHA256:abc\nIs this the host?", secret=False)
PASSWORD = Asked(8, "gpu-c", "password", "alice@gpu-c's password", secret=True)


def answers(on: Still) -> list[Answer]:
    """Return what was answered; the fleet asks for logs by itself."""
    return [message for message in on.link.sent if isinstance(message, Answer)]


def asks(app: Still) -> bool:
    return isinstance(app.app.screen, QuestionDialog)


async def test_what_is_typed_ahead_of_the_line_belongs_to_it() -> None:
    async with Still().showing("h:gpu0") as on:
        for character in ":filter xq\r":
            key = {":": "colon", " ": "space", "\r": "enter"}.get(character, character)
            on.app.post_message(Key(key, character))
        await on.sees(" of 1 GPU", "/xq")


async def test_what_is_deleted_right_before_enter_is_not_submitted() -> None:
    async with Still().showing("h:gpu0") as on:
        await on.press(["slash", *"gpu01"], "0 of 1 GPU")
        for key in "backspace", "enter":
            on.app.post_message(Key(key, None))
        await on.until(lambda: not on.app.prompt.active)
        assert on.app.view is not None and on.app.view.filter_text == "gpu0"


@pytest.mark.parametrize("leave", ["escape", "enter"])
async def test_what_is_typed_behind_the_line_belongs_to_the_view(leave: str) -> None:
    async with Still().showing("h:gpu0") as on:
        for key, character in ((":", ":"), ("s", "s"), (leave, None), ("2", "2")):
            on.app.post_message(Key({":": "colon"}.get(key, key), character))
        await on.sees("RSS/LIMIT")
        assert not on.app.prompt.active


DIALOGS = {
    "question_mark": "esc closes",
    "ctrl+p": "find a command",
    "minus": ":scale N sets it",
    "c": "esc] cancel",
    "q": "Leave lab?",
}


@pytest.mark.parametrize("opens", DIALOGS)
async def test_what_is_typed_behind_the_key_that_closes_a_dialog_is_for_the_view(
    opens: str,
) -> None:
    on = Still()
    on.link.reply = Previewed(0, (), (), "")
    async with on.showing("h:gpu0"):
        await on.press([opens], DIALOGS[opens])
        for key in "escape", "2", "slash", "h", "escape", "6":
            on.app.post_message(Key(key, key if len(key) == 1 else None))
        await on.until(lambda: on.app.current == "runs")
        assert on.app.view is not None and not on.app.view.filter_text


async def test_a_host_key_is_answered_with_its_fingerprint_in_sight() -> None:
    async with Still().showing() as on:
        on.link.put(HOST_KEY)
        await on.sees("gpu-b", "SHA256:abc", "yes, and remember it")
        await on.press("y", then=lambda: answers(on) == [Answer(7, "yes")])


async def test_a_password_is_typed_unseen() -> None:
    async with Still().showing() as on:
        on.link.put(PASSWORD)
        await on.sees("alice@gpu-c's password", "answer")
        await on.press([*"s3cret"], "••••••")
        await on.press(["enter"], then=lambda: answers(on) == [Answer(8, "s3cret")])


async def test_questions_are_asked_one_after_the_other() -> None:
    async with Still().showing() as on:
        on.link.put(HOST_KEY, PASSWORD)
        await on.sees("gpu-b", "[n] no")
        await on.press("n", "gpu-c")
        assert answers(on) == [Answer(7, None)]


async def test_keys_typed_as_a_question_comes_do_not_answer_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dialogs, "UNASKED_S", 3600.0)
    async with Still().showing() as on:
        on.link.put(HOST_KEY)
        await on.until(lambda: asks(on))
        await on.pilot.press("y", "enter", "n")
        assert asks(on) and not answers(on)


async def test_an_answer_given_on_another_screen_takes_the_question_away() -> None:
    async with Still().showing() as on:
        on.link.put(HOST_KEY)
        await on.until(lambda: asks(on))
        on.link.put(Asked(7, "gpu-b", "host-key", "", False, withdrawn=True))
        await on.until(lambda: not asks(on))
        assert not answers(on)


async def test_a_question_waits_until_what_is_typed_is_done() -> None:
    async with Still().showing("h:gpu0") as on:
        await on.pilot.press("slash")
        on.link.put(HOST_KEY)
        await on.until(lambda: on.app.watched.questions)
        await on.pilot.press(*"yyy")
        assert not asks(on) and not answers(on)
        await on.press(["escape"], then=lambda: asks(on))


async def test_a_question_that_was_put_off_is_asked_again_on_request() -> None:
    async with Still().showing() as on:
        on.link.put(HOST_KEY)
        await on.sees("yes, and remember it")
        await on.press(["escape"], then=lambda: not asks(on))
        await on.sees("1 question")
        await on.press("A", then=lambda: asks(on))


async def test_keys_typed_behind_that_of_a_view_are_for_the_view() -> None:
    async with Still(
        snapshot(host("h", device(0), device(1)), workers=(worker(0), worker(1)))
    ).showing(" gpu1 ") as on:
        for key in "2", "j":
            on.app.post_message(Key(key, key))
        await on.until(lambda: on.app.view and on.app.view.targets() == ("h:gpu1",))
        assert on.app.current == "workers"


@pytest.mark.parametrize(
    "keys",
    [
        ("right", "enter"),
        ("tab", "enter"),
        ("left", "tab", "tab", "tab", "shift+tab", "enter"),
        ("s",),
    ],
)
async def test_a_choice_is_taken_by_its_key_and_under_the_cursor(keys: tuple[str, ...]) -> None:
    async with Still().showing("gpu0", size=(100, 30)) as on:
        await on.press("q", "[l] leave it running", "[s] stop it", "[c] cancel")
        await on.press([*keys], then=lambda: on.link.asked == [Stop(0)])


@pytest.mark.parametrize("text", ["[c] cancel", "[s] stop it"])
async def test_a_click_takes_the_choice_that_it_hits(text: str) -> None:
    async with Still().showing("gpu0", size=(100, 30)) as on:
        await on.press("q", text)
        await on.pilot.click(
            ".choices", offset=("[l] leave it running   [s] stop it   [c]".index(text[:3]) + 4, 0)
        )
        await on.until(lambda: not isinstance(on.app.screen, Modal))
        assert on.link.asked == ([Stop(0)] if text.startswith("[s]") else [])


async def test_a_form_is_left_and_run_from_its_line_of_choices() -> None:
    async with Still().showing("gpu0", size=(120, 40)) as on:
        await on.press("c", "[^r] run", "on 1 worker (cupy)")
        await on.press(["shift+tab", "enter"], then=lambda: not isinstance(on.app.screen, Modal))
        assert on.link.asked == []
        await on.press("c", "[^r] run", "on 1 worker (cupy)")
        await on.pilot.press("shift+tab", "left", "left", "enter")
        await on.until(lambda: [type(each).__name__ for each in on.link.asked] == ["StartRun"])
