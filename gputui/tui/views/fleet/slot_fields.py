"""What the filter of the fleet can ask of a slot, or of a host without one.

What the matter is with it, its `alarm`, is known to who has the alarms only.
"""

from collections.abc import Callable

from gputui.slots import Slot, SlotState
from gputui.snapshot import HostState, HostStatus
from gputui.tui.filter import Fields
from gputui.tui.views.fleet.gpu_columns import memory_share


def _of_device(name: str) -> Callable[[Slot], float | None]:
    return lambda slot: getattr(slot.device, name, None)


SLOT_FIELDS: Fields[Slot] = Fields(
    everything=lambda slot: " ".join(
        (
            slot.key,
            slot.state.value,
            slot.device.name if slot.device else "",
            *(
                f"{process.user} {process.command}"
                for process in (slot.device.processes if slot.device else ())
            ),
            *(worker.current_task or "" for worker in slot.workers),
        )
    ),
    words={
        "state": lambda slot: slot.state.value,
        "host": lambda slot: slot.host.name,
        "model": lambda slot: slot.device.name if slot.device else "",
        "alarm": lambda slot: "",
    },
    numbers={
        "util": _of_device("utilization_percent"),
        "temp": _of_device("temperature_c"),
        "power": _of_device("power_w"),
        "clock": _of_device("sm_clock_mhz"),
        "ecc": _of_device("ecc_errors"),
        "mem": lambda slot: _percent(memory_share(slot)),
        "cpu": lambda slot: slot.total("cpu_percent"),
        "rss": lambda slot: slot.total("rss_bytes"),
        "spill": lambda slot: slot.total("spilled_bytes"),
        "executing": lambda slot: slot.total("executing"),
        "ready": lambda slot: slot.total("ready"),
        "restarts": lambda slot: slot.total("restarts"),
    },
    sizes={"mem": lambda slot: _used(slot)},
    choices={"state": (*SlotState, *HostState)},
)

HOST_FIELDS: Fields[HostStatus] = Fields(
    everything=lambda host: f"{host.name} {host.state.value} {host.reason}",
    words={
        "state": lambda host: host.state.value,
        "host": lambda host: host.name,
        "model": lambda host: "",
        "alarm": lambda host: "",
    },
    numbers={name: lambda host: None for name in SLOT_FIELDS.numbers},
    choices={"state": (*SlotState, *HostState)},
)


def _used(slot: Slot) -> float | None:
    """Return the bytes of memory in use; of a CPU worker, its own."""
    return slot.device.memory_used_bytes if slot.device else slot.total("rss_bytes")


def _percent(fraction: float | None) -> float | None:
    return None if fraction is None else fraction * 100
