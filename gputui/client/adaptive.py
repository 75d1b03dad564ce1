"""The result of `cluster.adapt()`: Dask's interface to a loop that the head runs."""

import inspect
import math
import time
from collections.abc import Generator, Mapping
from typing import TYPE_CHECKING, Any, Self

import dask.config
from dask.utils import parse_timedelta
from distributed.deploy import adaptive
from distributed.scheduler import Scheduler
from tornado.ioloop import PeriodicCallback

from gputui.client.keywords import MOST_WORKERS, seconds, whole_number
from gputui.engine.overrides import overriding
from gputui.errors import UsageError
from gputui.protocol.frontend import Adapt

if TYPE_CHECKING:
    from gputui.client.running import RunningCluster


@overriding(adapt="self", stop="self reason")
class Adaptive(adaptive.Adaptive):  # type: ignore[misc]
    """The bounds, and `stop`; nothing runs here, and nothing stops when this is dropped."""

    def __init__(self, cluster: "RunningCluster", **options: Any) -> None:
        super().__init__(cluster, **{**options, "interval": 0})
        interval = options.get("interval") or dask.config.get("distributed.adaptive.interval")
        self.interval = parse_timedelta(interval, "seconds")
        # Never started: it says to those who look at it that the number is adaptive.
        shown = PeriodicCallback(lambda: None, self.interval * 1000)
        self.periodic_callback: PeriodicCallback | None = shown
        self.state = "running"
        most = MOST_WORKERS if math.isinf(self.maximum) else int(self.maximum)
        self._asked = cluster._ask(
            Adapt(
                0,
                int(self.minimum),
                most,
                interval_s=self.interval,
                wait_count=int(self.wait_count),
                target_duration_s=self.target_duration,
            )
        )

    def __await__(self) -> Generator[Any, None, Self]:
        if hasattr(self._asked, "__await__"):
            yield from self._asked.__await__()
        return self

    async def adapt(self) -> None:
        """Do nothing: the head looks by itself."""

    def followed(self, before: frozenset[str], now: frozenset[str]) -> None:
        """Log a change of the desired workers."""
        if self.state == "running" and len(now) > len(before):
            self.log.append((time.time(), {"status": "up", "n": len(now)}))
        elif self.state == "running" and before - now:
            self.log.append((time.time(), {"status": "down", "workers": sorted(before - now)}))

    def ended(self) -> None:
        """Take note that the number of workers is not followed any more."""
        self.periodic_callback, self.state = None, "stopped"

    def stop(self, reason: str = "unknown") -> None:
        """Leave the number of workers as it is from now on."""
        if self.state == "running":
            self.ended()
            self.cluster._ask(Adapt(0, 0, 0, on=False))

    def __del__(self) -> None:
        """Leave the head at it."""


def fitting(kind: type, options: Mapping[str, Any]) -> type:
    """Return the class that follows the work with these options; raises UsageError.

    The head's loop has no use for what chooses the workers to close: Dask's own does that.
    """
    whole = {
        name: whole_number(name, options.get(name))
        for name in ("minimum", "maximum", "wait_count")
        if options.get(name) != math.inf
    }
    least, most = whole["minimum"] or 0, whole.get("maximum")
    if most is not None and least > most:
        raise UsageError(f"minimum={least}, maximum={most}: the minimum is the greater one")
    for name in ("interval", "target_duration"):
        seconds(name, options.get(name))
    if kind is not Adaptive:
        return kind
    usual = [name for name in inspect.signature(adaptive.Adaptive).parameters if name != "kwargs"]
    choosing = inspect.signature(Scheduler.workers_to_close).parameters
    known = {*usual, *choosing} - {"self", "cluster", "key", "target", "attribute"}
    if unknown := sorted(options.keys() - known):
        from gputui.presets.definition import close_names

        close = close_names(unknown[0], known)
        hint = f" (did you mean {close}?)" if close else ""
        raise UsageError(f"{unknown[0]}={options[unknown[0]]!r}: adapt has no such option{hint}")
    chooses = any(options.get(name) is not None for name in options.keys() - {*usual})
    return adaptive.Adaptive if chooses or options.get("worker_key") else Adaptive
