"""The frame, driven by its keys on a simulated cluster."""

from collections.abc import Callable

from textual.pilot import Pilot

from gputui.demo import DemoLink, Shape
from gputui.tui.app import ScreenApp
from gputui.tui.dialogs import Dialog

STEP_S = 0.02


class Demo:
    """A simulated cluster that is up, and a screen on it."""

    def __init__(self, shape: Shape | None = None, *, readonly: bool = False) -> None:
        self.now = 1_700_000_000.0
        self.link: DemoLink | None = None
        self.shape = shape or Shape(2, 4)
        self.app = ScreenApp(self.open, readonly=readonly, clock=lambda: self.now)

    async def open(self) -> DemoLink:
        """Open a link to a cluster in its second minute."""
        link = await DemoLink.open(self.shape, troubles=False, clock=lambda: self.now)
        self.now += 60
        self.link = link
        return link

    @property
    def workers(self) -> int:
        """How many workers are up or on their way."""
        assert self.link is not None
        return self.link.simulator.population.workers_wanted


async def until(pilot: "Pilot[int]", condition: Callable[[], object]) -> None:
    """Wait until a condition holds, five seconds at the most."""
    for _ in range(250):
        if condition():
            await pilot.pause()
            return
        await pilot.pause(STEP_S)
    raise AssertionError("it did not come to be within five seconds")


def seen(pilot: "Pilot[int]") -> str:
    """Return what is on the screen."""
    strips = pilot.app.screen._compositor.render_strips()
    return "\n".join(strip.text for strip in strips)


async def up(pilot: "Pilot[int]") -> None:
    """Wait until GPUs are shown."""
    await until(pilot, lambda: "node-01:gpu0" in seen(pilot))


def in_dialog(pilot: "Pilot[int]") -> bool:
    return isinstance(pilot.app.screen, Dialog)


async def test_the_fleet_shows_every_gpu_with_its_state() -> None:
    demo = Demo()
    async with demo.app.run_test(size=(80, 24)) as pilot:
        await up(pilot)
        assert all(f"node-0{host}:gpu{gpu}" in seen(pilot) for host in (1, 2) for gpu in range(4))
        assert "SIMULATED" in seen(pilot)


async def test_plus_shows_what_would_start_and_a_no_changes_nothing() -> None:
    demo = Demo()
    async with demo.app.run_test(size=(80, 24)) as pilot:
        await up(pilot)
        await pilot.press("minus")
        await until(pilot, lambda: "stop 1" in seen(pilot))
        await pilot.press("escape")
        await until(pilot, lambda: not in_dialog(pilot))
        assert demo.workers == 8


async def test_a_yes_to_the_preview_scales_the_cluster() -> None:
    demo = Demo()
    async with demo.app.run_test(size=(80, 24)) as pilot:
        await up(pilot)
        await pilot.press("minus")
        await until(pilot, lambda: "7 workers" in seen(pilot))
        await pilot.press("minus")
        await until(pilot, lambda: "stop 2" in seen(pilot))
        await pilot.press("y")
        await until(pilot, lambda: demo.workers == 6)


async def test_leaving_asks_and_leaves_the_cluster_running() -> None:
    demo = Demo()
    async with demo.app.run_test(size=(80, 24)) as pilot:
        await up(pilot)
        await pilot.press("q")
        await until(pilot, lambda: "leave it running" in seen(pilot))
        await pilot.press("l")
        await until(pilot, lambda: not demo.app.is_running)
    assert demo.app.return_value == 0


async def test_cancelling_the_question_stays() -> None:
    demo = Demo()
    async with demo.app.run_test(size=(80, 24)) as pilot:
        await up(pilot)
        await pilot.press("ctrl+q")
        await until(pilot, lambda: in_dialog(pilot))
        await pilot.press("escape")
        await until(pilot, lambda: not in_dialog(pilot))
        assert demo.app.is_running


async def test_a_read_only_screen_changes_nothing() -> None:
    demo = Demo(readonly=True)
    async with demo.app.run_test(size=(80, 24)) as pilot:
        await up(pilot)
        await pilot.press("minus")
        await until(pilot, lambda: "read-only" in seen(pilot))
        assert not in_dialog(pilot)


async def test_a_paused_screen_draws_nothing_new_and_goes_on_afterwards() -> None:
    demo = Demo()
    async with demo.app.run_test(size=(80, 24)) as pilot:
        await up(pilot)
        await pilot.press("p")
        await until(pilot, lambda: "PAUSED" in seen(pilot))
        before = demo.app.watched.snapshot
        await until(pilot, lambda: demo.app.watched.snapshot is not before)
        await pilot.press("p")
        await until(pilot, lambda: "PAUSED" not in seen(pilot))


async def test_a_command_can_be_typed() -> None:
    demo = Demo()
    async with demo.app.run_test(size=(80, 24)) as pilot:
        await up(pilot)
        await pilot.press("colon", *"scale 3", "enter")
        await until(pilot, lambda: "stop 5" in seen(pilot))
        await pilot.press("y")
        await until(pilot, lambda: demo.workers == 3)
