"""The users view: everybody who has GPUs, with the GPUs of the one under the cursor."""

from collections.abc import Iterable
from typing import ClassVar

from gputui.model.readings import is_free
from gputui.tui.commands.changes import by_host
from gputui.tui.commands.command_registry import Command
from gputui.tui.filter import Fields
from gputui.tui.rendering import Line, fitted
from gputui.tui.rendering import format as fmt
from gputui.tui.rendering.columns import Column, text_column
from gputui.tui.rendering.owners import GpuSum, gpu_sums, owner_line
from gputui.tui.views.listing import Listing, order_commands
from gputui.tui.watched import Watched

USER_COLUMNS: tuple[Column[GpuSum], ...] = (
    text_column("USER", 16, 0, lambda u: fmt.safe(u.name), lambda u: "title", lambda u: u.name),
    text_column(
        "GPUS", 5, 0, lambda u: str(len(u.devices)), sort=lambda u: len(u.devices), right=True
    ),
    text_column(
        "MEM", 12, 0, lambda u: fmt.memory(*u.memory_bytes), sort=lambda u: u.memory_bytes[0],
        right=True,
    ),
    text_column(
        "PWR", 8, 0, lambda u: f"{fmt.number(u.power_w)} W", sort=lambda u: u.power_w, right=True
    ),
    text_column(
        "IDLE", 8, 0, lambda u: f"{fmt.age(u.idle_s)}", sort=lambda u: u.idle_s, right=True
    ),
    text_column("ON", 10, 1, lambda u: by_host([name for name, _ in u.devices]), rest=20),
)  # fmt: skip


class UsersView(Listing[GpuSum]):
    """Everybody who has a GPU, by a claim or a process, and what they have."""

    NAME = "users"
    NOTHING = "nobody has a GPU"
    COLUMNS = USER_COLUMNS
    FILTER = Fields(
        everything=lambda u: f"{u.name} {' '.join(name for name, _ in u.devices)}",
        words={"user": lambda u: u.name},
        numbers={
            "gpus": lambda u: len(u.devices),
            "power": lambda u: u.power_w,
            "idle": lambda u: u.idle_s,
        },
        times=("idle",),
    )
    COMMANDS: ClassVar[tuple[Command, ...]] = order_commands("users")

    def values(self, watched: Watched) -> Iterable[GpuSum]:
        """Return all users, those with the most GPUs first."""
        now = watched.snapshot.taken_at if watched.snapshot else 0.0
        return gpu_sums(((slot.key, slot.device) for slot in watched.slots if slot.device), now)

    def about(self, value: GpuSum, width: int, height: int) -> list[Line]:
        """Describe each GPU that the user has."""
        snapshot = self.screen_app.watched.snapshot
        now = snapshot.taken_at if snapshot else 0.0
        return [
            [(fitted(fmt.safe(name), 16), "title"), *owner_line(device, now)[1:]]
            for name, device in value.devices
        ]

    def open(self, value: GpuSum) -> None:
        """Show the user's GPUs in the fleet."""
        self.screen_app.go_to("fleet", value.devices[0][0])

    def crumbs(self) -> Line:
        """Say how many GPUs are free, too."""
        devices = [slot.device for slot in self.screen_app.watched.slots if slot.device]
        free = sum(map(is_free, devices))
        return [*super().crumbs(), (f"  {free} of {fmt.many(len(devices), 'GPU')} free", "dim")]
