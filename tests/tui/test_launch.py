"""The start view on built snapshots: what failed comes first, with why, and can be retried."""

from dataclasses import replace

from gputui.model.snapshot import HostState, HostStatus, Snapshot
from gputui.protocol.frontend import RetryHosts, SnapshotTaken
from tests.tui.build import device, host, snapshot
from tests.tui.still import Still


def refused(name: str) -> HostStatus:
    return host(
        name,
        state=HostState.FAILED,
        failed_stage="authenticating",
        reason="the host refused every key",
        hint=f"ssh-copy-id {name}",
        stderr_tail=("Permission denied (publickey).",),
    )


def coming_up(*more: HostStatus) -> Snapshot:
    return snapshot(host("a", state=HostState.PROBING), *more)


async def test_what_failed_comes_first_with_why_and_the_last_log_lines() -> None:
    on = Still(coming_up(host("b"), refused("c")))
    async with on.showing("hosts 1/3", "failed", size=(120, 30)):
        await on.sees("the host refused every key", "try: ssh-copy-id c", "Permission denied")


async def test_a_silent_host_is_counted_as_silent_and_not_as_failed() -> None:
    async with Still(snapshot(host("a", state=HostState.SILENT), refused("b"))).showing() as on:
        await on.sees("hosts 0/2", "failed", "silent")


async def test_the_start_view_stays_where_no_host_came_up() -> None:
    async with Still(snapshot(refused("b"))).showing("hosts 0/1", "try: ssh-copy-id b") as on:
        on.link.put(SnapshotTaken(replace(snapshot(host("b", device())), sequence=2)))
        await on.sees("b:gpu0")


async def test_the_cursor_goes_to_a_host_that_fails_until_it_is_moved() -> None:
    on = Still(coming_up(host("b", state=HostState.PROBING)))
    async with on.showing("hosts 0/2", size=(120, 30)):
        failed = coming_up(refused("b"))
        on.link.put(SnapshotTaken(replace(failed, sequence=2)))
        await on.until(lambda: on.app.view and on.app.view.targets() == ("b",))
        await on.pilot.press("j")
        worse = snapshot(refused("c"), refused("b"), host("a", state=HostState.PROBING))
        on.link.put(SnapshotTaken(replace(worse, sequence=3)))
        await on.sees("and 1 more")
        assert on.app.view is not None and on.app.view.targets() == ("a",)


async def test_hosts_are_filtered_by_name_state_stage_and_reason() -> None:
    async with Still(coming_up(host("b"), refused("c"))).showing("hosts 1/3", size=(120, 30)) as on:
        for text in ("state:failed", "failed:authen*", "every", "c*"):
            await on.press(["slash", *text, "enter"], f"/{text}", "ssh-copy-id c")
            await on.sees_not("●●●●●●", "●●●◔··")
            await on.press(["escape"], "●●●●●●", "●●●◔··")
        await on.press(["slash", *"util<20"], "no field util; known: state, failed")


async def test_a_filter_that_hides_the_cursors_row_shows_what_is_known_of_another() -> None:
    on = Still(coming_up(host("b"), refused("c")))
    async with on.showing("ssh-copy-id c", size=(120, 30)):
        await on.pilot.press("G")
        view = on.app.view
        await on.until(lambda: view and view.current.host.name != "c")
        assert view is not None
        view.narrow("failed:authen*")
        view.show(on.app.watched)  # once: nothing else comes that would be drawn
        assert view.query_one("#about").display


async def test_one_host_is_tried_again_or_all() -> None:
    on = Still(coming_up(refused("b"), refused("c")))
    async with on.showing("and 1 more", size=(120, 30)):
        await on.press("r", then=lambda: on.link.asked == [RetryHosts(0, ("b",))])
        await on.press(["1", "r"], then=lambda: on.link.asked[1:] == [RetryHosts(0, ())])


async def test_why_is_said_whole_of_every_host_that_failed_with_the_hint_below() -> None:
    why = "its Python is 3.9.2 and has no module gputui; " * 4 + "that is all"
    worse = replace(refused("c"), reason=why, hint="name another one: c python=/opt/bin/python3.12")
    on = Still(coming_up(refused("b"), worse, host("d")))
    async with on.showing("and 1 more", "✖ b  failed while authenticating", "✖ c  failed while"):
        await on.sees("that is all", "try: name another one", "try: ssh-copy-id b")
        text = on.text
        assert text.index("that is all") < text.index("try: name another one")
        assert sum(not line.strip() for line in text.splitlines()) < 8, text


async def test_the_start_view_shows_the_queue_while_there_are_too_few_free_gpus() -> None:
    queue = "too few free GPUs: 2 asked for, 1 free\n  b gpu0: alice · since 3h\n  before you: bob"
    on = Still(replace(snapshot(host("b", device())), lacking=queue))
    async with on.showing(*queue.splitlines()):
        on.link.put(SnapshotTaken(replace(snapshot(host("b", device())), sequence=2)))
        await on.sees("b:gpu0")
